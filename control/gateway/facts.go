package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/tunnel"
)

// facts are what a check of a peer starts from.
func (g *Gateway) facts(name string) (check.Facts, bool) {
	m := g.roster.Load().byName[name]
	if m == nil {
		return check.Facts{}, false
	}
	t, _ := g.plane.engine.Peer(m.key)
	w := g.way(m, t)
	f := check.Facts{
		Name: m.name, Address: m.address(), Stock: m.stock, Pending: m.pending,
		Since: g.running.Load().since[m.key], LastHandshake: t.LastHandshake,
		ServiceFacts: check.ServiceFacts{Direct: m.direct},
	}
	g.keepers.shown(m.name, &f)
	for _, c := range g.candidateStatus(m, w) {
		f.Candidates = append(f.Candidates, catalogue.Candidate{
			Address: c.Address, Source: c.Source, State: c.State, Reason: c.Reason, Relay: c.Relay,
		})
	}
	if w.found {
		g.wayFacts(m, w, &f)
	} else {
		for _, e := range m.endpoints(g.provenEndpoints(m.key)) {
			f.Endpoints = append(f.Endpoints, e.String())
		}
	}
	if !m.pending {
		g.sightings(m, w, &f)
	}
	f.TellsOffers = g.reports.tellsOffers(m.key)
	if h, ok := g.reports.last(m.key); ok {
		f.Path.PeerNAT = catalogue.NAT{Mapping: h.NAT.Mapping, Filtering: h.NAT.Filtering}
	}
	if skew, ok := g.reports.skew(m.key); ok {
		f.Skew = skew
	}
	if h, ok := g.hellos.get(m.key); ok {
		a := apiServerOf(h.Hello)
		f.Offers, f.ServerName, f.CA = h.Offers, a.ServerName, []byte(a.CAData)
		if f.Offers == nil {
			f.Offers = []string{}
		}
	}
	return f, true
}

// brief is of facts what says whether a peer need be checked at all.
func (g *Gateway) brief(name string) (check.Facts, bool) {
	m := g.roster.Load().byName[name]
	if m == nil {
		return check.Facts{}, false
	}
	f := check.Facts{Name: m.name, Stock: m.stock, TellsOffers: g.reports.tellsOffers(m.key)}
	s, found := g.paths.finder.Selected(m.key)
	if !found || m.stock || m.pending {
		return f, true
	}
	f.Path = check.PathFacts{Kind: api.PathNone, Since: s.Since, MTU: s.MTU, LinkMTU: g.plane.mtu}
	if s.Path.IsValid() {
		f.Probed = s.Heard
		f.Path.Kind, f.Path.Remote = s.Kind, s.Path.Remote.String()
	}
	return f, true
}

// wayFacts are what the path finder knows of a peer, and what was seen of it without an
// answer.
func (g *Gateway) wayFacts(m *member, w way, f *check.Facts) {
	selected := w.path.Selected.IsValid()
	if selected {
		f.Probed = w.path.Heard
	} else {
		f.NoPath, f.PathLost = w.path.Reason, w.path.Since
	}
	f.Endpoints = w.addresses()
	f.Path = check.PathFacts{
		Kind: api.PathNone, Since: w.path.Since, RTT: w.path.RTT, MTU: w.path.MTU, LinkMTU: g.plane.mtu,
		NAT: natFacts(g.agent.Load().Snapshot().NAT),
	}
	if selected {
		f.Path.Kind, f.Path.Remote = w.path.Kind, w.shown(w.path.Selected)
		f.Path.Relay = w.servers.server(w.path.Selected.Via)
	}
	for _, u := range w.unresolved {
		f.Unresolved = append(f.Unresolved, check.NameFact{Name: u.Name, Err: u.Reason})
	}
	s := g.paths.finder.Sight(m.key)
	for _, n := range s.Moved {
		f.Moved = append(f.Moved, check.NameFact{Name: n.Name, Was: texts(n.Was), Now: texts(n.Now), At: n.At})
	}
	f.Boots, f.BootsAt = s.Boots, s.BootsAt
	// A peer that has just died was heard until then: only what came after its answers
	// had ceased says that it hears nothing of us. Heard would not do, since it has the
	// peer's own requests as well.
	if !selected && s.RequestAt.After(w.path.Since) && s.RequestAt.After(w.path.Proven) {
		f.HeardUnanswered = check.Sight{From: s.RequestFrom.String(), At: s.RequestAt}
	}
}

// sightings are what came to our port and may explain why the peer does not answer. They
// are not read while it does.
func (g *Gateway) sightings(m *member, w way, f *check.Facts) {
	if w.connected(time.Now()) {
		return
	}
	var ips []netip.Addr
	for _, c := range m.known() {
		ips = append(ips, c.Addr.Addr())
	}
	for _, c := range w.path.Candidates {
		ips = append(ips, c.Path.Remote.Addr())
	}
	s := g.recent.sightings(g.plane.engine, m.key, ips)
	f.Initiated = sight(s.Initiated)
	if f.Skew == 0 {
		f.Skew = s.Skew
	}
	f.Unverified, f.NotForUs = sight(s.Unverified), sight(s.NotForUs)
	if !s.OtherKey.At.IsZero() {
		f.OtherKey = check.KeySight{Sight: sight(s.OtherKey.Sight), Key: s.OtherKey.Key.String()}
	}
	if !s.StampInPast.At.IsZero() {
		f.StampInPast = check.StampSight{Sight: sight(s.StampInPast.Sight), Stamp: s.StampInPast.Stamp, Newest: s.StampInPast.Newest}
	}
	for _, u := range s.Unreachable {
		f.Unreachable = append(f.Unreachable, check.Refusal{To: u.To.String(), Reason: u.Reason, At: u.At})
	}
}

func sight(s tunnel.Sight) check.Sight {
	if s.At.IsZero() {
		return check.Sight{}
	}
	return check.Sight{From: s.From.String(), At: s.At}
}

// own are what a check of this gateway starts from.
func (g *Gateway) own() check.Own {
	cfg := g.running.Load().cfg
	s := g.agent.Load().Snapshot()
	o := check.Own{Name: cfg.Name, Shown: g.shown(cfg, s)}
	o.LAN = g.lan.facts(time.Now())
	o.Networks, o.TicketAlarmAt = g.networks(), g.book.AlarmedAt()
	o.Found = g.found.all()
	o.Mapping = mappingFacts(s.PortMapping)
	o.Sockets.ReceiveBuffer, o.Sockets.SendBuffer, o.Sockets.Drops = g.plane.bind.Socket()
	for _, server := range s.Servers {
		x := check.Server{Name: server.Name, Err: server.Err, At: server.AnsweredAt}
		if server.Addr.IsValid() {
			x.Address = server.Addr.String()
		}
		o.STUN = append(o.STUN, x)
	}
	for _, r := range g.paths.relays.Load().statuses() {
		o.TURN = append(o.TURN, check.Server{Name: r.Address, Address: r.Address, Err: r.Err, At: r.Since})
	}
	if a := cfg.Services.APIServer; a != nil {
		o.Upstreams = append(o.Upstreams, check.Upstream{
			Service: api.ServiceAPIServer, Address: a.Address, TLS: true, ServerName: a.ServerName, CA: a.CAData,
		})
	}
	for _, n := range cfg.Services.Named {
		o.Upstreams = append(o.Upstreams, check.Upstream{Service: n.Name, Address: n.Address})
	}
	return o
}

// shown is what this gateway shows of itself to the outside.
func (g *Gateway) shown(cfg *config.Resolved, s discovery.Snapshot) catalogue.Shown {
	o := catalogue.Shown{
		Port: g.plane.bind.Port(), NAT: natFacts(s.NAT),
		Candidates: []catalogue.Candidate{}, Advertised: cfg.Discovery.Advertise,
	}
	for _, c := range s.Candidates {
		o.Candidates = append(o.Candidates, catalogue.Candidate{Address: c.Addr.String(), Source: c.Source})
	}
	return o
}

// networks are those that this machine is in.
func (g *Gateway) networks() []netip.Prefix {
	networks, err := g.opts.Networks()
	if err != nil {
		g.log.Debug("the networks of this machine are not known", "error", err)
	}
	return networks
}

// interfaceNetworks are the networks of this machine's interfaces.
func interfaceNetworks() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			out = append(out, p.Masked())
		}
	}
	return out, nil
}

// networksAround guesses networks from addresses, by the lengths that are usual.
func networksAround(hosts func() ([]netip.Addr, error)) ([]netip.Prefix, error) {
	addrs, err := hosts()
	var out []netip.Prefix
	for _, a := range addrs {
		bits := 24
		if a.Is6() {
			bits = 64
		}
		out = append(out, netip.PrefixFrom(a, bits).Masked())
	}
	return out, err
}

func natFacts(n discovery.NAT) catalogue.NAT {
	return catalogue.NAT{Mapping: n.Mapping, Filtering: n.Filtering}
}

func texts(addrs []netip.Addr) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}
