package exchange

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/roster"
)

const (
	// automaticListeners is for how many services of a peer there are listeners that nobody
	// asked for: each costs a port here, one of the peer's Service and one of its policy, and a
	// hello may name 256.
	automaticListeners = 16
	// offersEvery is how often a peer may change what it offers and have it followed: each time
	// objects in the cluster are written.
	offersEvery = time.Minute
)

// following is what peers offer, by their names, as far as the cluster follows it. The zero
// value is ready, and is safe for concurrent use.
type following struct {
	mu sync.Mutex
	m  map[string]*offer
}

// offer is a peer's.
type offer struct {
	services []string // sorted
	ports    map[string]api.Ports
	// changed is when it was changed last; zero while it is the first.
	changed time.Time
	// warned: it was complained of that it is too much.
	warned bool
}

// hear takes what a peer offers. The first is followed at once, and so is a change that comes a
// minute after the last; one that comes sooner has to be heard again. excess is how many are
// beyond what there are listeners for, the first time that there are any.
func (o *following) hear(name string, h auth.Hello, now time.Time) (excess int) {
	services, ports := slices.Sorted(slices.Values(h.Offers)), map[string]api.Ports{}
	for _, s := range services {
		if p, ok := h.PortsOf(s); ok {
			ports[s] = p
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	x := o.m[name]
	switch {
	case x == nil:
		if o.m == nil {
			o.m = map[string]*offer{}
		}
		x = &offer{services: services, ports: ports}
		o.m[name] = x
	case slices.Equal(x.services, services) && maps.Equal(x.ports, ports) || !x.changed.IsZero() && now.Sub(x.changed) < offersEvery:
		return 0
	default:
		x.services, x.ports, x.changed = services, ports, now
	}
	if _, excess = Automatic(services); excess == 0 || x.warned {
		return 0
	}
	x.warned = true
	return excess
}

// get is what a peer offers, if it was heard in this run.
func (o *following) get(name string) (services []string, ports map[string]api.Ports, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	x := o.m[name]
	if x == nil {
		return nil, nil, false
	}
	return x.services, x.ports, true
}

// drop forgets a peer.
func (o *following) drop(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.m, name)
}

// Automatic are the services of a peer for which there is a listener though nobody asked for
// one: its API server, whether it is offered or not, then those that it offers by name, as far
// as they go. excess is how many are left.
func Automatic(services []string) (wanted []string, excess int) {
	wanted = []string{api.ServiceAPIServer}
	for _, s := range slices.Compact(slices.Sorted(slices.Values(services))) {
		switch {
		case s == api.ServiceAuth || s == api.ServiceAPIServer:
		case len(wanted) < automaticListeners:
			wanted = append(wanted, s)
		default:
			excess++
		}
	}
	return wanted, excess
}

// Followed is what a peer offers as far as the cluster follows it; elsewhere all of it.
func (x *Exchange) Followed(m *roster.Member) []string {
	if services, _, ok := x.following.get(m.Name); ok {
		return services
	}
	return x.Offers(m)
}

// follow has the cluster follow what a peer offers. It is for one who
// may change the peers.
func (x *Exchange) follow(m *roster.Member, h auth.Hello) {
	if x.o.Peers.Config().Kubernetes == nil {
		return
	}
	if n := x.following.hear(m.Name, h, time.Now()); n > 0 {
		x.log.Warn("a peer offers more services than there are listeners for in a cluster; the others need spec.local of its Peer",
			"peer", m.Name, "listeners", automaticListeners, "without", n)
	}
	x.o.Followed()
	x.o.Changed()
}

// FollowedPorts are the ports of a peer's named service, as far as the cluster follows it.
func (x *Exchange) FollowedPorts(name, service string) (api.Ports, bool) {
	_, ports, _ := x.following.get(name)
	p, ok := ports[service]
	return p, ok
}
