package way

import (
	"cmp"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

func faulty(c *api.Check) bool {
	return c.DependsOn == "" && (c.Verdict.Verdict == api.Error || c.Verdict.Verdict == api.Warning)
}

func faultOf(c *api.Check) *Fault {
	return &Fault{Check: c.Name, Direction: c.Direction, Outcome: c.Verdict.Verdict, Confidence: c.Confidence, Code: c.Code,
		Title: catalogue.Title(catalogue.Code(c.Code)), place: c.Place, Cause: c.Cause, Steps: api.StepsOf(c.Steps, c.Fix, c.Command), Fix: c.Fix, Command: c.Command}
}

// put places a check's fault.
func (m *maker) put(c *api.Check) {
	if !faulty(c) || m.sight(c).Now == api.Unknown {
		return
	}
	s, f := placeOf(c), faultOf(c)
	switch _, doubted := suspect(m.peer); {
	case doubted && c.Code == string(catalogue.PingLost):
		s = place{Between, api.Unknown, api.Unknown} // an earlier handshake passed
	case s.silent() && m.peer.Path.Proven != nil:
		s = probed
	}
	if s.at == Service {
		m.serviceFails(c, f)
		return
	}
	at := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.Kind == s.at })
	if s.at == Router && at < 0 { // it is the one in front of the peer, or the peer's machine
		at = slices.IndexFunc(m.Nodes, func(n Node) bool { return n.Kind == Far || n.Kind == There })
	}
	switch {
	case at >= 0:
		m.Nodes[at].Fault = graver(m.Nodes[at].Fault, f)
	default: // no node for it: the fault is on the edge between the sides
		e := &m.Edges[m.between()]
		e.Fault = graver(e.Fault, f)
		if lost := m.Edges[m.outside].Path; lost != nil && s.at == Between && s.forth == "" {
			lost.LossRatio = nil // the fault has its own figure, for packets of all kinds
		}
	}
	m.tell(s, at, c)
}

// between returns the edge between the two sides, behind a relay that works.
func (m *maker) between() int {
	next := m.outside + 1
	if m.Nodes[next].Kind == Relay && next < len(m.Edges) && m.own("exposure-turn") == api.OK {
		return next
	}
	return m.outside
}

// tell sets the edges' states according to a fault. What comes after the place where a direction
// fails is unknown.
func (m *maker) tell(s place, at int, c *api.Check) {
	forth, back := s.forth, s.back
	switch {
	case s.partial(): // some packets pass, however bad that is
		if forth = api.Warning; c.Stage != oneWay {
			back = forth
		}
	case s == probed:
		m.Nodes[len(m.Nodes)-1].Probed = true
	case c.Verdict.Verdict == api.Warning: // packets pass
		return
	}
	last := at - 1 // the last edge before the fault
	if at < 0 {
		last = m.between()
	}
	set := func(to *api.Outcome, o api.Outcome, i int) {
		switch {
		case s == probed && i == last: // likewise
			*to = api.Warning
		case o == "" || o == api.Warning && i != last || s.partial() && i != last:
		case at >= 0 && i > last && s.at != Here:
			*to = api.Unknown
		case o == api.OK || i == last:
			*to = o
		case i < last && at < 0: // on this side of a relay that works
			*to = api.OK
		default:
			*to = api.Unknown
		}
	}
	begin := m.outside
	if s.at == Here && begin > 0 && forth != api.OK {
		begin, m.Nodes[1].State = 0, api.Unknown
	}
	for i := begin; i < len(m.Edges); i++ {
		ahead, behind := &m.Edges[i].Out, &m.Edges[i].In
		if c.Direction == api.DirectionInbound {
			ahead, behind = behind, ahead
		}
		set(ahead, forth, i)
		set(behind, back, i)
	}
}

// serviceFails places a fault of a service. If the service has no node, it creates one.
func (m *maker) serviceFails(c *api.Check, f *Fault) {
	direction := c.Direction
	if direction == api.DirectionOwn {
		direction = api.DirectionInbound
	}
	n := m.service(cmp.Or(causedAt[catalogue.Code(c.Code)], ServiceOf(c)), direction)
	n.State, n.Fault = Worse(n.State, f.Outcome), graver(n.Fault, f)
}

// service returns the node of a service, creating it if necessary.
func (m *maker) service(name, direction string) *Node {
	i := slices.IndexFunc(m.Services, func(n Node) bool { return n.Name == name && n.Direction == direction })
	if i < 0 {
		i = len(m.Services)
		m.Services = append(m.Services, Node{Kind: Service, Name: name, Direction: direction, State: api.Unknown})
	}
	return &m.Services[i]
}

func graver(a, b *Fault) *Fault {
	if a == nil || severity(b.Outcome) < severity(a.Outcome) {
		return b
	}
	return a
}

// nodes sets the nodes' states: of faulty ones by their faults, of others by whether something
// passed them.
func (m *maker) nodes() {
	for i := range m.Nodes {
		n := &m.Nodes[i]
		switch {
		case n.Fault != nil:
			n.State = n.Fault.Outcome
		case i > m.outside && m.passed(i):
			n.State = api.OK
		}
		if n.Kind == Far && n.Fault != nil && misdirects(n.Fault) {
			n.Name = "address"
		}
	}
}

// passed reports whether something arrived from the peer or, for another node, whether packets pass
// in both directions before or behind it. One direction is not enough: the node may block the
// other.
func (m *maker) passed(i int) bool {
	before := &m.Edges[i-1]
	if n := &m.Nodes[i]; n.Kind == There {
		return !n.Probed && (passes(before.Out) || passes(before.In) || m.tunnel() == api.OK)
	}
	return before.whole() || m.Edges[i].whole()
}

// misdirects reports whether a fault means that the peer's address is wrong.
func misdirects(f *Fault) bool {
	return f.Code != string(catalogue.NoWayIn) && f.Code != string(catalogue.RouterRefuses)
}

// unexplained uses the gateway's own reason if no check has found yet why nothing gets through.
func (m *maker) unexplained() {
	e, b := &m.Edges[m.outside], m.ofTunnel()
	if c, doubted := suspect(m.peer); doubted && (b == nil || b.Outcome != api.Error) {
		e.Fault = m.soon("the path has stopped answering", c.Reason)
		return
	}
	if b != nil || passes(e.Out) && passes(e.In) || m.find(api.ServiceGateway).DependsOn != "" {
		return
	}
	if m.peer.UnconfirmedSince != nil && m.peer.Shown() == api.StateUnconfirmed {
		e.Fault = m.soon("what is sent is not answered", "nothing sent since "+m.peer.UnconfirmedSince.UTC().Format(time.TimeOnly)+" UTC was answered")
		return
	}
	if why := cmp.Or(m.peer.Reason, m.peer.Path.Reason); why != "" {
		e.Fault = &Fault{Outcome: api.Unknown, Cause: why}
	}
}

// soon returns a new fault that no check has explained yet.
func (m *maker) soon(title, cause string) *Fault {
	steps := api.Steps{{Text: catalogue.Wait()}, {Text: "run", Command: "postern check " + m.Peer, Here: true}}
	return &Fault{Outcome: api.Warning, Title: title, Cause: cause, Steps: steps, Fix: steps.String(), Command: steps.Command()}
}

// graver returns the break to look at first of one, which may be nil, and a fault, which may be
// nil.
func (b *Break) graver(at Kind, f *Fault, place func() (string, bool)) *Break {
	if f == nil || b != nil && severity(b.Outcome) <= severity(f.Outcome) {
		return b
	}
	b = &Break{At: at, Fault: *f}
	if b.Place, b.Located = place(); f.place != "" {
		b.Place = f.place
	}
	return b
}

// first returns the fault to look at first.
func (m *maker) first() *Break {
	best := m.ofTunnel()
	for _, here := range []bool{true, false} {
		for _, n := range m.Services {
			if here != (n.Direction == api.DirectionInbound) {
				continue
			}
			best = best.graver(Service, n.Fault, func() (string, bool) {
				switch {
				case here:
					return "at " + n.Name + " of this gateway", true
				case n.Fault.Direction == api.DirectionOwn:
					return "at this gateway", true
				}
				return "at " + n.Name + " of " + m.Peer, true
			})
		}
	}
	return best
}

// ofTunnel returns the fault of the tunnel to look at first.
func (m *maker) ofTunnel() (best *Break) {
	for i, n := range m.Nodes {
		best = best.graver(n.Kind, n.Fault, func() (string, bool) { return "at " + m.called(n), true })
		if i < len(m.Edges) {
			best = best.graver(Between, m.Edges[i].Fault, func() (string, bool) {
				place, located := m.stretch(i)
				// A code may know more, but not of what fails although packets pass.
				return place, located || m.Edges[i].Fault.place != "" && !m.Edges[i].whole()
			})
		}
	}
	return best
}

// stretch describes where the fault of an edge is: anywhere from the edge to the peer, because
// nothing in between can say more, or if even that is unknown, from the last node that is known to
// work.
func (m *maker) stretch(i int) (place string, located bool) {
	f := m.Edges[i].Fault
	s := placeOf(&api.Check{Name: f.Check, Direction: f.Direction, Verdict: api.Verdict{Code: f.Code}})
	switch s.at { // these have no node
	case NAT:
		return "in front of this gateway", true
	case Far:
		return "at the address of " + m.Peer, true
	}
	from, last := i, len(m.Nodes)-1
	if !m.Edges[i].located() || s.silent() {
		for from > 0 && m.Edges[from-1].unknown() {
			from--
		}
		return "somewhere between " + m.called(m.Nodes[from]) + " and " + m.called(m.Nodes[last]), false
	}
	place = "between " + m.called(m.Nodes[from]) + " and " + m.called(m.Nodes[last])
	if before := m.Nodes[last-1]; before.Kind == Far && before.State != api.OK {
		place += ", including its " + before.Name
	}
	return place, true
}

// called returns a node's name in a sentence.
func (m *maker) called(n Node) string {
	switch n.Kind {
	case Here:
		return "this gateway"
	case NAT:
		return "the NAT here"
	case Relay:
		return "the relay " + n.Name
	case Router:
		return "the router " + n.Address
	case Far:
		return "the " + n.Name + " of " + m.Peer
	}
	return n.Name
}
