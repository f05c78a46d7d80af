package pod

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/kube/access"
	"github.com/postern-dev/postern/control/kube/exposure"
	"github.com/postern-dev/postern/control/kube/guard"
	"github.com/postern-dev/postern/control/kube/mcs"
	"github.com/postern-dev/postern/control/kube/notices"
	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/peers"
	"github.com/postern-dev/postern/control/kube/role"
	"github.com/postern-dev/postern/control/kube/secrets"
	"github.com/postern-dev/postern/control/kube/tickets"
	"github.com/postern-dev/postern/discovery"
)

// Labels of the gateway's pods, set by the chart.
const (
	labelName     = "app.kubernetes.io/name"
	labelInstance = "app.kubernetes.io/instance"
	name          = "postern"
)

// Sources of problems shown as own checks.
const (
	sourceExposure = "exposure"
	sourceAccess   = "access"
	sourceGuard    = "guard"
	sourceAccount  = "account"
	sourceSecrets  = "secrets"
	sourceMCS      = "mcs"
	sourceLabel    = "label"
)

// label reports to the gateway, whenever it is attached, that the active pod cannot be labelled.
type label struct {
	mu      sync.Mutex
	problem []check.OwnProblem
	tell    func([]check.OwnProblem) // nil while no gateway is attached
}

func (l *label) refused(problem []check.OwnProblem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem = problem; l.tell != nil {
		l.tell(problem)
	}
}

func (l *label) attach(tell func([]check.OwnProblem)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tell = tell; tell != nil {
		tell(l.problem)
	}
}

// labelProblem returns the problem that the active pod cannot be labelled; nil without an error.
func labelProblem(err error, pod, namespace string) []check.OwnProblem {
	if err == nil {
		return nil
	}
	p := objects.Problem(err, "pods", namespace)
	p.Params.Object = "Pod " + pod
	p.Params.Detail = strings.TrimPrefix(p.Params.Detail+"; so the active pod lacks the label "+role.Label+"="+role.Active+", and no Service leads to it", "; so ")
	return []check.OwnProblem{p}
}

// attach runs a gateway's controllers; kept is its state.
func (p *pod) attach(ctx context.Context, g *gateway.Gateway, kept *secrets.Backend) (detach func(), err error) {
	p.before.Store(g)
	p.lease.SetPublicKey(g.PublicKey().String())
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	p.label.attach(func(list []check.OwnProblem) { g.SetProblems(sourceLabel, list) })
	detach = func() { p.label.attach(nil); cancel(); running.Wait() }
	runs, err := p.controllers(g)
	if err != nil {
		detach()
		return nil, err
	}
	runs = append(runs, func(ctx context.Context) {
		kept.Watch(ctx, func(list []check.OwnProblem) { g.SetProblems(sourceSecrets, list) })
	})
	for _, run := range runs {
		running.Go(func() { run(ctx) })
	}
	return detach, nil
}

// controllers creates the controllers of a gateway, and returns their Run methods.
func (p *pod) controllers(g *gateway.Gateway) ([]func(context.Context), error) {
	k, log := p.o.Config.Kubernetes, p.o.Logger
	all := map[string]string{labelName: name, labelInstance: k.Release}
	active := map[string]string{labelName: name, labelInstance: k.Release, role.Label: role.Active}
	account := p.o.Cluster.Namespace() + ":" + k.Release

	pc, err := peers.New(peers.Options{Cluster: p.o.Cluster, Gateway: g, Name: p.o.Config.Name, Logger: log})
	if err != nil {
		return nil, err
	}
	tc, err := tickets.New(tickets.Options{Cluster: p.o.Cluster, Gateway: g, Name: p.o.Config.Name, Logger: log})
	if err != nil {
		return nil, err
	}
	authService, authPort := outOfBand(p.o.Config)
	ew, err := exposure.New(exposure.Options{
		Cluster: p.o.Cluster, Service: k.Service, AuthService: authService, Port: g.Port(), Pods: active, Account: account, Logger: log,
		OnChange: func(e exposure.Exposure) { show(g, e) },
	})
	if err != nil {
		return nil, err
	}
	nw, err := notices.New(notices.Options{Cluster: p.o.Cluster, Gateway: g, About: p.owner, Instance: p.o.Config.Name, Logger: log})
	if err != nil {
		return nil, err
	}
	bounds, err := guard.New(guard.Options{Cluster: p.o.Cluster, Release: k.Release, Pod: p.name, Logger: log,
		OnProblems: func(list []check.OwnProblem) { g.SetProblems(sourceAccount, list) }})
	if err != nil {
		return nil, err
	}
	runs := []func(context.Context){pc.Run, tc.Run, ew.Run, nw.Run, bounds.Run}
	g.OnChange(nw.Changed)
	if k.PeerServices {
		keeper, err := access.NewKeeper(access.Options{
			Cluster: p.o.Cluster, Gateway: g, Release: k.Release, From: k.PeerServicesFrom, Selector: active, Pods: all, Port: g.Port(), AuthPort: authPort, Account: account, Owner: p.owner,
			OnProblems: func(list []check.OwnProblem) { g.SetProblems(sourceAccess, list) }, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		g.OnChange(keeper.Changed)
		runs = append(runs, keeper.Run)
	}
	if k.MCS != nil {
		clusterset, err := mcs.New(mcs.Options{
			Cluster: p.o.Cluster, Services: g.Services(), Release: k.Release, ID: p.o.Config.Name, Address: p.address, Namespaces: k.MCS.Namespaces, DNS: k.MCS.DNS != "",
			OnProblems: func(list []check.OwnProblem) { g.SetProblems(sourceMCS, list) }, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		runs = append(runs, clusterset.Run)
	}
	return runs, nil
}

// outOfBand returns the Service and the TCP port of auth outside the tunnel; zero if there is
// none. As in the chart, with TLS it is a port of the gateway's Service, and without TLS a
// separate Service.
func outOfBand(c *config.Resolved) (service string, port uint16) {
	o := c.Services.OutOfBand
	if o == nil {
		return "", 0
	}
	service = c.Kubernetes.Service
	if o.CertFile == "" {
		service += "-out-of-band"
	}
	// The configuration was checked, so there is a port. The chart uses no named ports.
	_, text, _ := net.SplitHostPort(o.Listen)
	number, _ := strconv.ParseUint(text, 10, 16)
	return service, uint16(number)
}

// show tells the gateway how the cluster exposes it.
func show(g *gateway.Gateway, e exposure.Exposure) {
	list := make([]discovery.ServiceEndpoint, 0, len(e.Endpoints))
	for _, x := range e.Endpoints {
		list = append(list, discovery.ServiceEndpoint{Address: x.Address, From: x.From})
	}
	g.SetServiceEndpoints(list)
	g.SetProblems(sourceExposure, e.Problems)
}
