package discovery

import (
	"net/netip"
	"slices"
	"time"
)

// ServiceEndpoint is an address that leads to the gateway, according to its cluster.
type ServiceEndpoint struct {
	// Address is "IP:port" or "host:port"; a name is resolved, and again every minute.
	Address string
	// From says where it is from: "LoadBalancer of Service postern".
	From string
}

// ServiceState is a ServiceEndpoint and its state.
type ServiceState struct {
	ServiceEndpoint
	Addrs []netip.AddrPort
	Err   string // why there are none, or no newer ones; empty if nothing is wrong
}

// service is a ServiceEndpoint in the gatherer.
type service struct {
	*name
	from string
}

// SetServiceEndpoints replaces the addresses that the gateway's cluster routes to it, which are
// candidates with the source "service". Unchanged ones are not resolved again.
func (a *Agent) SetServiceEndpoints(list []ServiceEndpoint) {
	a.update(func(time.Time) { a.g.setServices(list) })
}

func (g *gatherer) setServices(list []ServiceEndpoint) {
	next := make([]service, 0, len(list))
	for _, e := range list {
		if slices.ContainsFunc(next, func(s service) bool { return s.text == e.Address }) {
			continue
		}
		if i := slices.IndexFunc(g.services, func(s service) bool { return s.text == e.Address }); i >= 0 {
			next = append(next, service{g.services[i].name, e.From})
			continue
		}
		n, err := parseName(e.Address)
		if err != nil {
			n = &name{text: e.Address, settled: true, err: err.Error()}
			g.events = append(g.events, event{nameFailed, e.Address, n.err})
		}
		next = append(next, service{n, e.From})
	}
	g.services = next
}

// serviceAddrs returns the addresses of an endpoint that may be announced, and why others may not
// be: a cluster on a laptop calls its load balancer localhost.
func (s service) serviceAddrs() (fit []netip.AddrPort, leftOut []LeftOut) {
	for _, a := range s.addrPorts() {
		if why := unusable(a.Addr()); why != "" {
			leftOut = append(leftOut, LeftOut{a.Addr(), SourceService, why + " (" + s.from + ")"})
			continue
		}
		fit = append(fit, a)
	}
	return fit, leftOut
}

func (g *gatherer) serviceStates() []ServiceState {
	var out []ServiceState
	for _, s := range g.services {
		out = append(out, ServiceState{ServiceEndpoint{s.text, s.from}, s.addrPorts(), s.err})
	}
	return out
}
