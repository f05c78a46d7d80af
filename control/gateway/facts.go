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
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/tunnel"
)

// facts are what a check of a peer starts from.
func (g *Gateway) facts(name string) (check.Facts, bool) {
	m := g.peers.Load().ByName(name)
	if m == nil {
		return check.Facts{}, false
	}
	t, _ := g.plane.Engine.Peer(m.Key)
	w := g.paths.Way(m, t)
	f := check.Facts{
		Name: m.Name, Address: m.Address(), Stock: m.Stock, Pending: m.Pending,
		Since: g.peers.Since(m.Key), LastHandshake: t.LastHandshake,
		ServiceFacts: check.ServiceFacts{Direct: m.Direct},
	}
	for _, c := range w.Candidates(m) {
		f.Candidates = append(f.Candidates, catalogue.Candidate{
			Address: c.Address, Source: c.Source, State: c.State, Reason: c.Reason, Relay: c.Relay,
		})
	}
	if w.Found {
		g.wayFacts(m, w, &f)
	} else {
		for _, e := range m.Endpoints(g.peers.ProvenEndpoints(m.Key)) {
			f.Endpoints = append(f.Endpoints, e.String())
		}
	}
	if !m.Pending {
		g.sightings(m, w, &f)
	}
	g.exchange.AddFacts(m, &f)
	return f, true
}

// brief is of facts what says whether a peer need be checked at all.
func (g *Gateway) brief(name string) (check.Facts, bool) {
	m := g.peers.Load().ByName(name)
	if m == nil {
		return check.Facts{}, false
	}
	f := check.Facts{Name: m.Name, Stock: m.Stock, TellsOffers: g.exchange.TellsOffers(m.Key)}
	s, found := g.paths.Selected(m.Key)
	if !found || m.Stock || m.Pending {
		return f, true
	}
	f.Path = check.PathFacts{Kind: api.PathNone, Since: s.Since, MTU: s.MTU, LinkMTU: g.plane.MTU}
	if s.Path.IsValid() {
		f.Probed = s.Heard
		f.Path.Kind, f.Path.Remote = s.Kind, s.Path.Remote.String()
	}
	return f, true
}

// wayFacts are what the path finder knows of a peer, and what was seen of it without an
// answer.
func (g *Gateway) wayFacts(m *roster.Member, w paths.Way, f *check.Facts) {
	selected := w.Path.Selected.IsValid()
	if selected {
		f.Probed = w.Path.Heard
	} else {
		f.NoPath, f.PathLost = w.Path.Reason, w.Path.Since
	}
	f.Endpoints = w.Addresses()
	f.Path = check.PathFacts{
		Kind: api.PathNone, Since: w.Path.Since, RTT: w.Path.RTT, MTU: w.Path.MTU, LinkMTU: g.plane.MTU,
		NAT: natFacts(g.paths.Agent().Snapshot().NAT),
	}
	if selected {
		f.Path.Kind, f.Path.Remote = w.Path.Kind, w.Shown(w.Path.Selected)
		f.Path.Relay = w.Relay()
	}
	for _, u := range w.Unresolved {
		f.Unresolved = append(f.Unresolved, check.NameFact{Name: u.Name, Err: u.Reason})
	}
	s := g.paths.Sight(m.Key)
	for _, n := range s.Moved {
		f.Moved = append(f.Moved, check.NameFact{Name: n.Name, Was: texts(n.Was), Now: texts(n.Now), At: n.At})
	}
	f.Boots, f.BootsAt = s.Boots, s.BootsAt
	// A peer that has just died was heard until then: only what came after its answers
	// had ceased says that it hears nothing of us. Heard would not do, since it has the
	// peer's own requests as well.
	if !selected && s.RequestAt.After(w.Path.Since) && s.RequestAt.After(w.Path.Proven) {
		f.HeardUnanswered = check.Sight{From: s.RequestFrom.String(), At: s.RequestAt}
	}
}

// sightings are what came to our port and may explain why the peer does not answer. They
// are not read while it does.
func (g *Gateway) sightings(m *roster.Member, w paths.Way, f *check.Facts) {
	if w.Connected(time.Now()) {
		return
	}
	var ips []netip.Addr
	for _, c := range m.Known() {
		ips = append(ips, c.Addr.Addr())
	}
	for _, c := range w.Path.Candidates {
		ips = append(ips, c.Path.Remote.Addr())
	}
	s := g.recent.sightings(g.plane.Engine, m.Key, ips)
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
	cfg := g.peers.Config()
	s := g.paths.Agent().Snapshot()
	o := g.shown(cfg, s)
	o.LAN = g.found.LANFacts(time.Now())
	o.Networks, o.TicketAlarmAt = g.networks(), g.peers.Book().AlarmedAt()
	o.Found = g.problems.all()
	o.Mapping = mappingFacts(s.PortMapping)
	o.Sockets.ReceiveBuffer, o.Sockets.SendBuffer, o.Sockets.Drops = g.plane.Bind.Socket()
	for _, server := range s.Servers {
		x := check.Server{Name: server.Name, Err: server.Err, At: server.AnsweredAt}
		if server.Addr.IsValid() {
			x.Address = server.Addr.String()
		}
		o.STUN = append(o.STUN, x)
	}
	for _, r := range g.paths.RelayStatuses() {
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
func (g *Gateway) shown(cfg *config.Resolved, s discovery.Snapshot) check.Own {
	o := check.Own{
		Name: cfg.Name, ListenPort: g.plane.Bind.Port(), NAT: apiNAT(s.NAT),
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
