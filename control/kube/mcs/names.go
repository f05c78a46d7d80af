package mcs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

const (
	// domain is the clusterset's domain according to the KEP.
	domain = "clusterset.local"
	// namesEvery is how often the cluster's DNS is queried, and namesAgain how soon after a wrong
	// answer: it learns of a new import with a delay.
	namesEvery = 5 * time.Minute
	namesAgain = 15 * time.Second
	// namesPatience is how long one query may take.
	namesPatience = 5 * time.Second
)

// Lookup returns the addresses of a name, like [net.Resolver.LookupNetIP].
type Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// server is the gateway's own DNS server.
type server struct {
	at     string // the address of its Service, or the Service's name
	lookup Lookup // asks it
}

// names queries the cluster's DNS for an imported service, since the gateway may not read its
// configuration. One goroutine uses it; the query runs in another.
type names struct {
	lookup  Lookup
	asked   string                                // the name
	ips     []string                              // what it was asked for
	own     func(context.Context) (server, error) // nil where the gateway serves no names
	next    time.Time
	problem []check.OwnProblem
	answer  chan []check.OwnProblem // to the question under way, for answered; nil when there is none
	asking  sync.WaitGroup
}

// look queries one import that has addresses and stays, if a query is due: DNS may have dropped one
// that is being deleted. It returns when to call it again.
func (n *names) look(ctx context.Context, s seen, stays func(*v1beta1.ServiceImport) bool) time.Duration {
	var x *v1beta1.ServiceImport
	still := false
	for _, i := range s.imports {
		if !stays(i) || len(i.Spec.IPs) == 0 {
			continue
		}
		still = still || nameOf(i) == n.asked && slices.Equal(i.Spec.IPs, n.ips)
		if x == nil || i.Namespace+i.Name < x.Namespace+x.Name {
			x = i
		}
	}
	if n.answer != nil && !still {
		n.answer, n.asked = nil, "" // whatever the answer is, it is about what is not there any more
	}
	switch {
	case n.answer != nil:
		return namesAgain
	case x == nil:
		n.asked, n.problem = "", nil
		return namesEvery
	}
	name := nameOf(x)
	if name != n.asked && n.problem == nil {
		n.asked, n.next = name, s.now.Add(namesAgain) // it has just been made
	}
	if wait := n.next.Sub(s.now); wait > 0 {
		return wait
	}
	n.asked, n.ips, n.next = name, x.Spec.IPs, s.now.Add(namesAgain)
	answer := make(chan []check.OwnProblem, 1)
	n.answer = answer
	n.asking.Go(func() { answer <- n.ask(ctx, name, x.Spec.IPs) })
	return namesAgain
}

// nameOf returns an import's name in DNS.
func nameOf(x *v1beta1.ServiceImport) string {
	return x.Name + "." + x.Namespace + ".svc." + domain + "."
}

// answered records the problem with the answer.
func (n *names) answered(problem []check.OwnProblem) {
	n.answer, n.problem = nil, problem
	if problem == nil {
		n.next = n.next.Add(namesEvery - namesAgain)
	}
}

// ask returns the problem with the answer for a name. If there is one and the gateway serves names
// itself, its server is queried too, to distinguish a DNS that does not forward from one that
// forwards to nobody.
func (n *names) ask(ctx context.Context, name string, want []string) []check.OwnProblem {
	problem := ask(ctx, n.lookup, name, want)
	if problem == nil || n.own == nil {
		return problem
	}
	own, err := n.own(ctx)
	lookup := own.lookup
	if err != nil {
		lookup = func(context.Context, string, string) ([]netip.Addr, error) { return nil, err }
	}
	if failed := ask(ctx, lookup, name, want); failed != nil {
		failed[0].Code, failed[0].Params.Address = catalogue.ClustersetSilent, own.at
		return failed
	}
	problem[0].Params.Server = own.at
	return problem
}

// ownServer returns the gateway's own server, from its Service, which the chart creates.
func (s *session) ownServer(ctx context.Context) (server, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name := s.o.Release + "-dns"
	var x corev1.Service
	if err := s.clients.core.Get().Namespace(s.cluster.Namespace()).Resource(serviceKind.resource).Name(name).Do(ctx).Into(&x); err != nil {
		return server{at: "Service " + name}, err
	}
	at := net.JoinHostPort(x.Spec.ClusterIP, "53")
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}}
	return server{at: x.Spec.ClusterIP, lookup: resolver.LookupNetIP}, nil
}

// ask returns the problem with one server's answer for a name.
func ask(ctx context.Context, lookup Lookup, name string, want []string) []check.OwnProblem {
	ctx, cancel := context.WithTimeout(ctx, namesPatience)
	defer cancel()
	got, err := lookup(ctx, "ip", name)
	p := check.OwnProblem{Name: check.NameServices, Code: catalogue.ClustersetSilent}
	p.Params.Domain, p.Params.Record = domain, name
	var failed *net.DNSError
	switch {
	case err == nil && slices.ContainsFunc(got, func(a netip.Addr) bool { return slices.Contains(want, a.Unmap().String()) }):
		return nil
	case err == nil:
		p.Code = catalogue.ClustersetWrong
		for _, a := range got {
			p.Params.Now = append(p.Params.Now, a.Unmap().String())
		}
	case errors.As(err, &failed) && failed.IsNotFound:
		p.Code = catalogue.ClustersetMissing
	default:
		p.Params.Detail = err.Error()
	}
	return []check.OwnProblem{p}
}
