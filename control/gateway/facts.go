package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// facts returns the input of a peer's checks.
func (g *Gateway) facts(name string) (check.Facts, bool) {
	m := g.peers.Load().ByName(name)
	if m == nil {
		return check.Facts{}, false
	}
	f := check.Facts{
		Name: m.Name, Key: m.Key.String(), Address: m.Address(), Stock: m.Stock, Pending: m.Pending, Awaited: m.Awaited,
		Since: g.peers.Since(m.Key), ServiceFacts: check.ServiceFacts{Direct: m.Direct},
		Joined: m.Origin == state.OriginInvited || m.Origin == state.OriginJoined,
	}
	for _, k := range m.Former {
		f.Former = append(f.Former, k.String())
	}
	g.paths.AddFacts(m, &f)
	g.exchange.AddFacts(m, &f)
	return f, true
}

// brief returns the part of facts that decides whether a peer needs checking at all.
func (g *Gateway) brief(name string) (check.Facts, bool) {
	m := g.peers.Load().ByName(name)
	if m == nil {
		return check.Facts{}, false
	}
	f := check.Facts{Name: m.Name, Stock: m.Stock, TellsOffers: g.exchange.TellsOffers(m.Key)}
	g.paths.AddBrief(m, &f)
	return f, true
}

// own returns the input of this gateway's own checks.
func (g *Gateway) own() check.Own {
	cfg := g.peers.Config()
	o := g.paths.Own()
	o.LAN = g.found.LANFacts(time.Now())
	o.Networks, o.Links = g.networks(), g.links()
	var joined peer.PublicKey
	if o.TicketAlarmAt, joined = g.peers.Book().LastAlarm(); g.peers.Load().ByKey(joined) != nil {
		o.TicketAlarmOf = g.peers.NameOf(joined)
	}
	o.Found = g.problems.all()
	for _, l := range g.services.Locals() {
		if p, lost := g.lost(l, time.Now()); lost {
			o.Found = append(o.Found, p)
		}
	}
	if a := cfg.Services.APIServer; a != nil {
		o.Upstreams = append(o.Upstreams, check.Upstream{
			Service: api.ServiceAPIServer, Address: a.Address, TLS: true, ServerName: a.ServerName, CA: a.CAData,
		})
	}
	for _, n := range cfg.Services.Named {
		if n.Ports.Protocol == api.UDP {
			continue // not enough is known to query it
		}
		o.Upstreams = append(o.Upstreams, check.Upstream{Service: n.Name, Address: n.Address})
	}
	return o
}

// lostFor is how long a listener whose last connection failed counts as a problem: nothing tries
// again but clients.
const lostFor = 10 * time.Minute

// lost returns the problem of a listener here that lost its last connection or flow of datagrams to
// a named service of a peer.
func (g *Gateway) lost(l forward.LocalState, now time.Time) (check.OwnProblem, bool) {
	return lostService(l, func(peer string) (time.Time, bool) {
		m := g.peers.Load().ByName(peer)
		if m == nil {
			return time.Time{}, false
		}
		return g.paths.ConnectedSince(m, now)
	}, now)
}

// lostService is [Gateway.lost]. If the peer itself is or was away, its own checks say so, and those
// of auth and the API server have their own as well. connected returns since when a peer is connected
// on its path.
func lostService(l forward.LocalState, connected func(peer string) (since time.Time, ok bool), now time.Time) (out check.OwnProblem, lost bool) {
	if l.Lost == nil || now.Sub(l.LostAt) > lostFor || l.Service == api.ServiceAuth || l.Service == api.ServiceAPIServer {
		return out, false
	}
	if since, ok := connected(l.Peer); !ok || l.LostAt.Before(since) {
		return out, false
	}
	return check.OwnProblem{Name: "listener-" + l.Service, Code: catalogue.PeerServiceDown,
		Params: catalogue.Params{Peer: l.Peer, Service: l.Service, Address: l.Address, Detail: catalogue.Reason(l.Lost)}}, true
}

// links returns the interfaces that lead outside.
func (g *Gateway) links() (out []check.Link) {
	links, err := g.opts.Links()
	if err != nil {
		g.log.Debug("failed to list this host's links", "error", err)
	}
	for _, l := range links {
		out = append(out, check.Link(l))
	}
	return out
}

// networks returns the networks that this host is in.
func (g *Gateway) networks() []netip.Prefix {
	networks, err := g.opts.Networks()
	if err != nil {
		g.log.Debug("failed to list this host's networks", "error", err)
	}
	return networks
}

// interfaceNetworks returns the networks of this host's interfaces.
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

// networksAround guesses networks from addresses, using common prefix lengths.
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
