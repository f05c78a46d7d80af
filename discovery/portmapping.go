package discovery

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/discovery/portmap"
)

// mapper tells the gatherer what the port mapper has, and the port mapper what the world
// outside sees. Its zero value is for gateways that ask no router.
type mapper struct {
	*portmap.Mapper
}

// tell gives the state of the mapping, nil when no router is asked.
func (m mapper) tell() *portmap.Status {
	if m.Mapper == nil {
		return nil
	}
	s := m.Status()
	return &s
}

// settled says that nothing is to be waited for.
func (m mapper) settled() bool { return m.Mapper == nil || m.Settled() }

func (m mapper) networkChanged() {
	if m.Mapper != nil {
		m.NetworkChanged()
	}
}

// PortMappingChanged tells that [Options].PortMapper has something new to say.
func (a *Agent) PortMappingChanged() { a.wakeUp() }

// PortMapper is that of the options; nil when no router is asked.
func (a *Agent) PortMapper() *portmap.Mapper { return a.mapper.Mapper }

// observe tells the port mapper what STUN servers see.
func (a *Agent) observe() {
	if a.mapper.Mapper == nil {
		return
	}
	a.mu.Lock()
	o := a.g.observation()
	a.mu.Unlock()
	if !o.equal(a.observed) {
		a.observed = o
		a.mapper.Observe(o.Observation)
	}
}

// observed is an observation that can be compared.
type observed struct{ portmap.Observation }

func (o observed) equal(other observed) bool {
	if o.Inbound != other.Inbound || !o.Tested.Equal(other.Tested) || len(o.Public) != len(other.Public) {
		return false
	}
	for i, p := range o.Public {
		if p != other.Public[i] {
			return false
		}
	}
	return true
}

// setMapping tells the state of the port mapping. With another mapping the NAT lets other
// traffic in, so it is tested again: not before it has forgotten what the last test sent,
// whose answers it would let in all the same.
func (g *gatherer) setMapping(s *portmap.Status, settled bool) {
	g.mappingSettled = settled
	if made(s) != made(g.mapping) {
		g.tests = natTests{}
		if !g.testedAt.IsZero() {
			g.tests.due = g.testedAt.Add(retestAfter)
		}
	}
	g.mapping = s
}

// made tells one mapping from another; the zero value is none.
func made(s *portmap.Status) (id struct {
	at       time.Time
	external netip.AddrPort
}) {
	if s != nil {
		id.at, id.external = s.Made, s.External
	}
	return id
}

// observation is what STUN servers see, and whether they got through.
func (g *gatherer) observation() observed {
	var o observed
	for _, s := range g.observations() {
		o.Public = append(o.Public, s.mapped)
	}
	o.Tested = made(g.mapping).at
	switch g.tests.filtering {
	case FilteringEndpointIndependent:
		o.Inbound = portmap.InboundOpen
	case FilteringAddress, FilteringAddressAndPort:
		o.Inbound = portmap.InboundShut
	}
	return o
}

// mappingProblem says why the router that is asked gives no candidate; empty when it does,
// or may yet.
func (g *gatherer) mappingProblem() (router, why string) {
	s := g.mapping
	if s == nil || s.State == portmap.StateMapped || !g.mappingSettled {
		return "", ""
	}
	router = "router"
	if s.Router.IsValid() {
		router = s.Router.String()
	}
	return router, s.Err
}
