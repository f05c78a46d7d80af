package exchange

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/roster"
)

const (
	// automaticListeners is how many services of a peer get a listener automatically. Each costs a
	// port here, one of the peer's Service and one of its policy, and a hello may name 256.
	automaticListeners = 16
	// lingers is how long a withdrawn service is still followed as if it were offered: a Service
	// that is created again gets another address.
	lingers = time.Minute
	// followAtOnce is how many changes of a peer's offers are followed in a row, and followEvery
	// how often after that: each change writes objects in the cluster.
	followAtOnce = 4
	followEvery  = time.Minute
)

// following holds the offers of peers, by name, as the cluster currently follows them. The zero
// value is ready to use and safe for concurrent use.
type following struct {
	mu sync.Mutex
	m  map[string]*offer
}

// services are offered services, sorted, and the ports of the named ones.
type services struct {
	names []string
	ports map[string]api.Ports
}

func servicesOf(h auth.Hello) services {
	s := services{slices.Compact(slices.Sorted(slices.Values(h.Offers))), map[string]api.Ports{}}
	for _, name := range s.names {
		if p, ok := h.PortsOf(name); ok {
			s.ports[name] = p
		}
	}
	return s
}

func (s services) equal(other services) bool {
	return slices.Equal(s.names, other.names) && maps.Equal(s.ports, other.ports)
}

func (s services) has(name string) bool {
	_, found := slices.BinarySearch(s.names, name)
	return found
}

// offer is one peer's.
type offer struct {
	heard, followed services
	// gone is when a followed service was withdrawn.
	gone map[string]time.Time
	pace *rate.Limiter
	// warned says that the excess of services was logged.
	warned bool
}

// hear records what a peer offers. excess is how many services have no listener, reported only the
// first time.
func (o *following) hear(name string, h auth.Hello, now time.Time) (excess int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	x := o.m[name]
	if x == nil {
		if o.m == nil {
			o.m = map[string]*offer{}
		}
		x = &offer{gone: map[string]time.Time{}, pace: rate.NewLimiter(rate.Every(followEvery), 1+followAtOnce)}
		o.m[name] = x
	}
	x.heard = servicesOf(h)
	x.turn(now)
	if _, excess = Automatic(x.followed.names); excess == 0 || x.warned {
		return 0
	}
	x.warned = true
	return excess
}

// turn follows what has become due. It reports whether anything changed.
func (o *following) turn(name string, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	x := o.m[name]
	return x != nil && x.turn(now)
}

// turn follows the latest offer: additions at once, removals after a while, and both at a limited
// rate.
func (x *offer) turn(now time.Time) bool {
	if x.heard.equal(x.followed) {
		clear(x.gone)
		return false
	}
	next := services{slices.Clone(x.heard.names), map[string]api.Ports{}}
	maps.Copy(next.ports, x.heard.ports)
	for _, s := range x.followed.names {
		if x.heard.has(s) {
			delete(x.gone, s)
			continue
		}
		if _, known := x.gone[s]; !known {
			x.gone[s] = now
		}
		if now.Sub(x.gone[s]) >= lingers {
			continue
		}
		next.names = append(next.names, s)
		if port, ok := x.followed.ports[s]; ok {
			next.ports[s] = port
		}
	}
	slices.Sort(next.names)
	if next.equal(x.followed) || !x.pace.AllowN(now, 1) {
		return false
	}
	x.followed = next
	maps.DeleteFunc(x.gone, func(s string, _ time.Time) bool { return !next.has(s) })
	return true
}

// get returns what a peer offers, if it was heard in this run.
func (o *following) get(name string) (services []string, ports map[string]api.Ports, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	x := o.m[name]
	if x == nil {
		return nil, nil, false
	}
	return x.followed.names, x.followed.ports, true
}

// drop forgets a peer.
func (o *following) drop(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.m, name)
}

// Automatic returns the services of a peer that get a listener automatically: its API server,
// whether offered or not, then the named services up to the limit. excess is how many are left
// over.
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

// Followed returns a peer's offers as the cluster follows them; all of them outside a cluster.
func (x *Exchange) Followed(m *roster.Member) []string {
	if services, _, ok := x.following.get(m.Name); ok {
		return services
	}
	return x.Offers(m)
}

// followDue makes the cluster follow what has become due.
func (x *Exchange) followDue(m *roster.Member, now time.Time) {
	if x.following.turn(m.Name, now) {
		x.o.Peers.Learn(m.Key, func(*roster.Member) { x.o.Followed() })
		x.o.Changed()
	}
}

// follow makes the cluster follow a peer's new offer. The caller holds the registry's lock.
func (x *Exchange) follow(m *roster.Member, h auth.Hello) {
	if x.o.Peers.Config().Kubernetes == nil {
		return
	}
	if n := x.following.hear(m.Name, h, time.Now()); n > 0 {
		x.log.Warn("peer offers more services than there are automatic listeners; list the others in spec.local of its Peer",
			"peer", m.Name, "listeners", automaticListeners, "without", n)
	}
	x.o.Followed()
	x.o.Changed()
}

// FollowedPorts returns the ports of a peer's named service, as the cluster follows it.
func (x *Exchange) FollowedPorts(name, service string) (api.Ports, bool) {
	_, ports, _ := x.following.get(name)
	p, ok := ports[service]
	return p, ok
}
