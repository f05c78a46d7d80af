package way

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/api"
)

// Of returns the way from a gateway to a peer. checks are those of the gateway's last report;
// missing or newer verdicts are taken from status. clusters are the services of clusters; nil if
// they are unknown, and then only those with a listener are included.
func Of(s *api.Status, p *api.PeerStatus, checks []api.Check, clusters []api.ClusterService) Way {
	m := maker{Way: Way{Peer: p.Name, Services: []Node{}}, status: s, peer: p, checks: found(p, checks), report: checks}
	m.lay()
	m.cross()
	m.serve()
	for i := range m.checks {
		m.put(&m.checks[i])
	}
	m.nodes()
	m.named(clusters)
	m.unexplained()
	m.Break = m.first()
	m.date()
	return m.Way
}

// maker is a way under construction.
type maker struct {
	Way
	status *api.Status
	peer   *api.PeerStatus
	checks []api.Check
	// outside is the edge on which packets leave this side.
	outside int
	// report has all checks, including those about other peers.
	report []api.Check
}

// own returns the outcome of a check of this gateway.
func (m *maker) own(name string) api.Outcome {
	for i := range m.report {
		if c := &m.report[i]; c.Direction == api.DirectionOwn && c.Name == name {
			return c.Verdict.Verdict
		}
	}
	return api.Unknown
}

// find returns a check by name.
func (m *maker) find(name string) *api.Check {
	i := slices.IndexFunc(m.checks, func(c api.Check) bool { return c.Name == name })
	if i < 0 {
		return &api.Check{Verdict: api.Verdict{Verdict: api.Unknown}}
	}
	return &m.checks[i]
}

// local reports whether the two are on one network, without NAT or firewall between them.
func local(p *api.Path) bool {
	return p.Kind == api.PathDirect && (p.Source == api.SourceHost || p.Source == api.SourceLAN)
}

// lay creates the nodes and edges.
func (m *maker) lay() {
	g, p := &m.status.Gateway, m.peer
	add := func(n Node) { n.State = api.Unknown; m.Nodes = append(m.Nodes, n) }
	here := Node{Kind: Here, Name: g.Name, Version: g.Version}
	if i := slices.IndexFunc(g.Candidates, func(c api.Candidate) bool { return c.Source == api.SourceHost }); i >= 0 {
		here.Address = g.Candidates[i].Address
	}
	add(here)
	if g.NAT.Mapping != "none" && !local(&p.Path) {
		add(Node{Kind: NAT, Name: "NAT", NAT: &g.NAT, Address: seenAt(g)})
		m.outside = 1
	}
	if router, ok := m.router(); ok {
		add(router)
	}
	if relay, ok := m.relay(); ok {
		add(relay)
	}
	if !local(&p.Path) {
		add(far(p))
	}
	add(Node{Kind: There, Name: p.Name, Version: p.Version, LastHandshake: p.LastHandshake})
	m.Edges = make([]Edge, len(m.Nodes)-1)
	for i := range m.Edges {
		m.Edges[i] = Edge{Out: api.Unknown, In: api.Unknown}
	}
	m.Edges[m.outside].Path = figures(&p.Path)
}

// seenAt returns this gateway's address as seen by others.
func seenAt(g *api.GatewayStatus) string {
	for _, source := range []string{api.SourcePortmap, api.SourceSTUN} {
		for _, c := range g.Candidates {
			if c.Source == source {
				return c.Address
			}
		}
	}
	if len(g.NAT.PublicAddresses) > 0 {
		return g.NAT.PublicAddresses[0]
	}
	return ""
}

// router returns the router that rejects packets, if its address is known and not the peer's own.
func (m *maker) router() (Node, bool) {
	for i := range m.checks {
		if c := &m.checks[i]; faulty(c) && placeOf(c).at == Router && !at(far(m.peer), c.By) {
			return Node{Kind: Router, Name: "router", Address: c.By}, true
		}
	}
	return Node{}, false
}

// at reports whether a node has an address, regardless of the port.
func at(n Node, address string) bool {
	a, err := netip.ParseAddrPort(n.Address)
	return err == nil && a.Addr().Unmap().String() == address
}

// relay returns the relay in use, or the one with a fault.
func (m *maker) relay() (Node, bool) {
	p := m.peer
	n := Node{Kind: Relay, Name: p.Path.Relay}
	if p.Path.Kind == api.PathRelay {
		n.Name, n.Address = cmp.Or(n.Name, p.Path.Remote, "relay"), p.Path.Remote
		return n, true
	}
	if !slices.ContainsFunc(m.checks, func(c api.Check) bool { return faulty(&c) && placeOf(&c).at == Relay }) {
		return n, false
	}
	n.Name = "relay"
	for _, c := range p.Candidates {
		if c.Source == api.SourceRelay || c.Relay != "" {
			n.Name, n.Address = cmp.Or(c.Relay, c.Address), c.Address
			break
		}
	}
	return n, true
}

// far returns what is in front of the peer, as far as its address shows.
func far(p *api.PeerStatus) Node {
	n := Node{Kind: Far, Name: "NAT or firewall"}
	if p.Path.Kind == api.PathDirect {
		n.Address, n.Source = p.Path.Remote, p.Path.Source
	} else {
		for _, c := range p.Candidates { // a private one shows nothing about that
			if c.Source != api.SourceRelay && c.Relay == "" && (n.Address == "" || !public(n.Address) && public(c.Address)) {
				n.Address, n.Source = c.Address, c.Source
			}
		}
	}
	switch n.Source {
	case api.SourceSTUN, api.SourcePortmap:
		n.Name = "NAT"
	case api.SourceAdvertised, api.SourceService, api.SourceDNS:
		if public(n.Address) {
			n.Name = "firewall"
		}
	}
	return n
}

func public(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && !a.Addr().IsPrivate()
}

// figures returns those of the path in use; nil if there is none.
func figures(p *api.Path) *Path {
	if p.Kind == "" || p.Kind == api.PathNone {
		return nil
	}
	out := &Path{Kind: p.Kind, Address: p.Remote, RTTSeconds: p.RTTSeconds, MTU: p.MTU}
	if t := p.Traffic; t.LossKnown() {
		out.LossRatio = &t.LossRatio
	}
	return out
}

// cross sets the edges' states that are known without a fault.
func (m *maker) cross() {
	tunnel := m.tunnel()
	for i := m.outside; i < len(m.Edges); i++ {
		m.Edges[i].Out, m.Edges[i].In = tunnel, tunnel
	}
	if own := m.leaves(tunnel); m.outside > 0 {
		m.Edges[0].Out, m.Edges[0].In = own, own
		m.Nodes[1].State = own
	}
	m.Nodes[0].State = api.OK // it has answered
}

// tunnel returns OK if the last known request through the tunnel was answered.
func (m *maker) tunnel() api.Outcome {
	c, p := m.find(api.ServiceGateway), m.peer
	alive := p.Shown() == api.StateConnected && p.Path.Kind != "" && !silenced(p)
	if c.DependsOn != "" || c.Verdict.Verdict == api.Error && !placeOf(c).partial() || !alive {
		return api.Unknown
	}
	return api.OK
}

// leaves returns OK if packets leave this side and answers return: from this peer, another one,
// or a server that reports our address.
func (m *maker) leaves(tunnel api.Outcome) api.Outcome {
	if tunnel == api.OK || m.Nodes[1].Address != "" && m.own("exposure-stun") != api.Warning {
		return api.OK
	}
	for i := range m.status.Peers {
		p := &m.status.Peers[i]
		if p.Name != m.peer.Name && p.Reachability.Outbound.Gateway.Verdict == api.OK && !local(&p.Path) {
			return api.OK
		}
	}
	return api.Unknown
}

// serve creates the services of both ends.
func (m *maker) serve() {
	for _, e := range ends(m.peer) {
		for _, name := range []string{api.ServiceAuth, api.ServiceAPIServer} {
			c := m.find(e.prefix + name)
			s := m.sight(c)
			m.Services = append(m.Services, Node{Kind: Service, Name: name, Direction: e.direction, State: s.Now, Before: s.Before, RTTSeconds: c.RTTSeconds})
		}
	}
}

// sight returns how a check's outcome counts; see [See].
func (m *maker) sight(c *api.Check) Sight {
	gate := m.find(api.ServiceGateway)
	if c.Direction != api.DirectionInbound && ServiceOf(c) == "" || c.Direction == api.DirectionOwn {
		return Sight{Now: c.Verdict.Verdict}
	}
	return sight(&c.Verdict, c.Direction, c.Target, gate.DependsOn != "" || broken(m.peer, &gate.Verdict))
}

// date marks figures measured before the way broke.
func (m *maker) date() {
	if f := m.Edges[m.outside].Path; f != nil && m.tunnel() == api.Unknown {
		f.Before, f.LossRatio = true, nil
	}
}
