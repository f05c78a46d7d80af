package discovery

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/discovery/portmap"
)

// mapper connects the gatherer and the port mapper: it passes on the state of the mapping, and what
// the outside sees. The zero value means no port mapping.
type mapper struct {
	*portmap.Mapper
}

// status returns the state of the mapping, nil without port mapping.
func (m mapper) status() *portmap.Status {
	if m.Mapper == nil {
		return nil
	}
	s := m.Status()
	return &s
}

// settled reports whether there is nothing to wait for.
func (m mapper) settled() bool { return m.Mapper == nil || m.Settled() }

func (m mapper) networkChanged() {
	if m.Mapper != nil {
		m.NetworkChanged()
	}
}

// PortMappingChanged reports that the state of [Options].PortMapper has changed.
func (a *Agent) PortMappingChanged() { a.wake.Set() }

// PortMapper returns the one of the options; nil without port mapping.
func (a *Agent) PortMapper() *portmap.Mapper { return a.mapper.Mapper }

// observe passes what STUN servers see to the port mapper.
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

// observed is a comparable observation.
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

// setMapping sets the state of the port mapping. With another mapping the NAT lets other traffic
// in, so it is tested again, but only once it has forgotten the packets of the last test, whose
// answers it would still let in.
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

// made identifies a mapping; the zero value is none.
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

// mappingProblem says why the port mapping gives no candidate; empty if it does, or still may.
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
