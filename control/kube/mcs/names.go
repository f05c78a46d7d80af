package mcs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

const (
	// domain is the clusterset's, as the KEP has it.
	domain = "clusterset.local"
	// namesEvery is how often the cluster's DNS is asked, and namesAgain how soon when it was
	// wrong: it reads of an import a moment after it is made.
	namesEvery = 5 * time.Minute
	namesAgain = 15 * time.Second
	// namesPatience is how long one question may take.
	namesPatience = 5 * time.Second
)

// Lookup finds the addresses of a name; [net.Resolver.LookupNetIP] does.
type Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// names asks the cluster's DNS for a service that is imported, since the gateway may not read how
// it is configured. One goroutine uses it; the question is asked in another.
type names struct {
	lookup  Lookup
	asked   string // the name
	next    time.Time
	problem []check.OwnProblem
	answer  chan []check.OwnProblem // to the question under way, for answered; nil when there is none
	asking  sync.WaitGroup
}

// look asks for one import that has addresses, if it is time to. It says when to come again.
func (n *names) look(ctx context.Context, s seen, ours func(*v1beta1.ServiceImport) bool) time.Duration {
	var x *v1beta1.ServiceImport
	for _, i := range s.imports {
		if ours(i) && len(i.Spec.IPs) > 0 && (x == nil || i.Namespace+i.Name < x.Namespace+x.Name) {
			x = i
		}
	}
	switch {
	case n.answer != nil:
		return namesAgain
	case x == nil:
		n.asked, n.problem = "", nil
		return namesEvery
	}
	name := x.Name + "." + x.Namespace + ".svc." + domain + "."
	if name != n.asked && n.problem == nil {
		n.asked, n.next = name, s.now.Add(namesAgain) // it has just been made
	}
	if wait := n.next.Sub(s.now); wait > 0 {
		return wait
	}
	n.asked, n.next = name, s.now.Add(namesAgain)
	answer := make(chan []check.OwnProblem, 1)
	n.answer = answer
	n.asking.Go(func() { answer <- ask(ctx, n.lookup, name, x.Spec.IPs) })
	return namesAgain
}

// answered takes what is wrong with the answer.
func (n *names) answered(problem []check.OwnProblem) {
	n.answer, n.problem = nil, problem
	if problem == nil {
		n.next = n.next.Add(namesEvery - namesAgain)
	}
}

// ask tells what is wrong with the answer for a name.
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
