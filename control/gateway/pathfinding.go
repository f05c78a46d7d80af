package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/mail"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

const (
	// maxAnnounced bounds the candidates taken of a peer: more than any has that means well.
	maxAnnounced = 24
	// rememberEvery is how often what peers announced is stored.
	rememberEvery = 30 * time.Second
)

// pathfinding joins the path finder to what it works with: the socket and the relays
// below, the tunnel and the network stack above, and the peers' path finders in-band.
type pathfinding struct {
	g      *Gateway
	boot   uint64 // the number of this start
	finder *discovery.Pathfinder
	mail   *mail.Sender[path.Message]
	ids    *allocationIDs
	relays atomic.Pointer[relays]
	// permitted are the addresses that allocations let in.
	permitted atomic.Pointer[[]netip.Addr]

	storing sync.Mutex // one storeGrants at a time, so that the last one's list stays

	mu     sync.Mutex
	closed bool
	// announced are the candidates that peers told and that are not stored yet.
	announced map[peer.PublicKey][]discovery.Candidate
	relaying  bool // useRelays was called before
	// grants are the allocations over UDP that there were last.
	grants []relay.Grant
	// selected are the paths in use: another one is a reason to check the peer, more
	// candidates are none.
	selected map[peer.PublicKey]peer.Path
	asking   sync.WaitGroup // of what runs beside; is not added to once closed
}

// openPathfinding makes a path finder that does nothing before run. The plane need not
// be there yet.
func openPathfinding(g *Gateway, cfg *config.Resolved) (*pathfinding, error) {
	boot, err := g.store.Boot(time.Now())
	if err != nil {
		g.log.Warn("the number of this start cannot be remembered; if the clock goes back, peers refuse this gateway's probes until it has caught up",
			"error", err)
	}
	p := &pathfinding{
		g: g, boot: boot, mail: newPathMail(g), ids: &allocationIDs{}, announced: map[peer.PublicKey][]discovery.Candidate{},
		selected: map[peer.PublicKey]peer.Path{},
	}
	p.relays.Store(&relays{cancel: func(error) {}})
	p.finder, err = discovery.NewPathfinder(discovery.PathfinderOptions{
		PrivateKey: g.key, BootID: boot, Send: p.send, Route: p.route, Handshake: p.handshake,
		Tell: p.mail.Post, Permit: p.permit, CheckRelays: func() { p.relays.Load().check() },
		Local: func() path.Local { return g.agent.Load().Local() }, Own: g.opts.OwnAddrs,
		Forbidden: cfg.Discovery.Exclude, Resolve: g.opts.Resolve, Keepalive: cfg.Discovery.Keepalive, OverlayMTU: g.mtu,
		OnSuperseded: g.hearsOfBoot, Logger: g.log,
	})
	if err != nil {
		return nil, fmt.Errorf("start the path finder: %w", err)
	}
	return p, nil
}

// run finds paths until ctx ends.
func (p *pathfinding) run(ctx context.Context) {
	if err := p.finder.Run(ctx); !errors.Is(err, context.Canceled) {
		p.g.log.Error("paths are not found any more", "error", err)
	}
}

// useRelays allocates at these servers, instead of the ones before. The first time it
// takes up what an earlier process had there.
func (p *pathfinding) useRelays(servers []relay.Server) {
	p.mu.Lock()
	first, closed := !p.relaying, p.closed
	p.relaying = true
	p.grants = slices.DeleteFunc(p.grants, func(g relay.Grant) bool {
		return !slices.ContainsFunc(servers, func(s relay.Server) bool { return s.Address == g.Server && s.Username == g.Username })
	})
	p.mu.Unlock()
	if first {
		p.relays.Store(p.openRelays(servers, p.storedGrants(), nil))
		return
	}
	gone := make(chan struct{})
	next := p.openRelays(servers, nil, gone)
	old := p.relays.Swap(next)
	closeOld := func() {
		defer close(gone)
		old.close()
	}
	p.mu.Lock()
	if closed = closed || p.closed; !closed {
		p.asking.Go(closeOld) // Saying farewell to a server that does not answer takes seconds.
	}
	p.mu.Unlock()
	if closed {
		closeOld()
	}
	if a := p.permitted.Load(); a != nil {
		next.permit(*a)
	}
}

// storedGrants are the allocations that earlier processes made from this port.
func (p *pathfinding) storedGrants() []relay.Grant {
	var out []relay.Grant
	for _, r := range p.g.store.Relays() {
		if r.Port == p.g.plane.Bind.Port() {
			out = append(out, relay.Grant{
				Server: r.Server, Username: r.Username, Address: r.Address, Relayed: r.Relayed, Mapped: r.Mapped, Expires: r.Expires,
			})
		}
	}
	return out
}

func (p *pathfinding) openRelays(servers []relay.Server, previous []relay.Grant, after <-chan struct{}) *relays {
	return openRelays(relaysOptions{
		bind: p.g.plane.Bind, servers: servers, ids: p.ids, resolve: p.g.opts.Resolve,
		onChange: func() {
			p.g.agent.Load().RelaysChanged()
			p.finder.LocalChanged()
		},
		previous: previous, onGrant: p.granted, after: after,
		logger: p.g.log,
	})
}

// granted notes an allocation that a later process may take up.
func (p *pathfinding) granted(g relay.Grant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants = slices.DeleteFunc(p.grants, func(o relay.Grant) bool { return o.Server == g.Server })
	p.grants = append(p.grants, g)
	if !p.closed {
		p.asking.Go(p.storeGrants)
	}
}

// storeGrants writes down the allocations that there are.
func (p *pathfinding) storeGrants() {
	p.storing.Lock()
	defer p.storing.Unlock()
	p.mu.Lock()
	list := make([]state.RelayGrant, 0, len(p.grants))
	for _, g := range p.grants {
		list = append(list, state.RelayGrant{
			Server: g.Server, Username: g.Username, Address: g.Address, Port: p.g.plane.Bind.Port(),
			Relayed: g.Relayed, Mapped: g.Mapped, Expires: g.Expires,
		})
	}
	p.mu.Unlock()
	if err := p.g.store.SetRelays(list); err != nil {
		p.g.log.Warn("an allocation on a relay cannot be remembered; after a restart this gateway has another relayed address, which peers may not learn of",
			"error", err)
	}
}

func (p *pathfinding) permit(addrs []netip.Addr) {
	p.permitted.Store(&addrs)
	p.relays.Load().permit(addrs)
}

func (p *pathfinding) send(packet []byte, to peer.Path, ttl int, dontFragment bool) error {
	return p.g.plane.Bind.WriteProbe(packet, to, underlay.SendOptions{TTL: ttl, DontFragment: dontFragment})
}

// handleSTUN takes what arrived at the socket or by a relay: a peer's probe, or a STUN
// server's answer.
func (p *pathfinding) handleSTUN(packet []byte, from peer.Path) {
	if !p.finder.HandleSTUN(packet, from) {
		p.g.agent.Load().HandleSTUN(packet, from)
	}
}

// route has the tunnel send where the path finder says, in packets that fit.
func (p *pathfinding) route(k peer.PublicKey, r path.Routing) {
	g := p.g
	if err := g.plane.Engine.SetPaths(k, tunnel.Paths{Initiate: r.Initiate, Selected: r.Selected}); err != nil {
		g.log.Debug("a path is for a peer that is gone", "peer", g.nameOf(k), "error", err) // removed meanwhile
		return
	}
	g.plane.Stack.SetPathMTU(peer.OverlayAddr(k), r.MTU)
	p.mu.Lock()
	moved := p.selected[k] != r.Selected
	p.selected[k] = r.Selected
	p.mu.Unlock()
	if m := g.peers.Load().ByKey(k); m != nil && moved {
		g.checks.Wake(m.Name)
	}
}

// forget drops what is kept of a peer that is gone.
func (p *pathfinding) forget(k peer.PublicKey) {
	p.mail.Forget(k)
	p.g.plane.Stack.SetPathMTU(peer.OverlayAddr(k), 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.selected, k)
	delete(p.announced, k)
}

// peerDials is how long a peer that has just been restarted, or has just found a path, is
// given to make the handshake itself.
const peerDials = time.Second

// handshake makes a fresh session: the peer has lost the old one, or it must be shown
// that a path carries more than probes.
func (p *pathfinding) handshake(k peer.PublicKey) {
	if err := p.g.plane.Engine.Renew(k, peerDials); err != nil {
		p.g.log.Debug("no handshake could be started", "peer", p.g.nameOf(k), "error", err)
	}
}

// heard takes the tunnel's evidence about paths.
func (p *pathfinding) heard(e tunnel.Event) {
	switch e.Kind {
	case tunnel.HandshakeDone:
		p.finder.HandshakeDone(e.Peer, e.Path)
	case tunnel.Quiet:
		p.ask(e.Peer)
	case tunnel.Silent:
		p.finder.Silent(e.Peer)
		p.relays.Load().check()
	}
}

const (
	// asks and askPause are how often a quiet peer is sent an echo: within the 3 s that
	// the tunnel then waits, and often enough for some loss.
	asks     = 3
	askPause = 800 * time.Millisecond
)

// ask sends a quiet peer something that it answers, if it hears us.
func (p *pathfinding) ask(k peer.PublicKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.asking.Go(func() {
		for range asks {
			ctx, cancel := context.WithTimeout(p.g.ctx, askPause)
			_, err := p.g.plane.Stack.Ping(ctx, peer.OverlayAddr(k), 0)
			if err != nil {
				<-ctx.Done() // one that fails at once is not repeated at once
			}
			cancel()
			if err == nil || p.g.ctx.Err() != nil {
				return
			}
		}
	})
}

// setPeers has paths found to the members that can be probed.
func (p *pathfinding) setPeers(r *roster.Roster) {
	found, near := p.g.dns.settle(r), p.g.lan.near(r)
	peers := make([]discovery.PathPeer, 0, len(r.Members()))
	for _, m := range r.Members() {
		if m.Stock || m.Pending {
			continue
		}
		at, before := found[m.Key], p.g.store.Observed(m.Key)
		peers = append(peers, discovery.PathPeer{
			Key: m.Key, PresharedKey: m.PSK, Name: m.Name, Candidates: knownCandidates(m, before), Names: m.Names,
			Announced: slices.Concat(p.g.lan.candidates(near, m, before), announcedBefore(m, before), at.candidates), Order: at.order,
		})
	}
	if err := p.finder.SetPeers(peers); err != nil {
		p.g.log.Warn("some peers cannot be probed", "error", err)
	}
}

// receive takes a message of a peer's path finder, and remembers the candidates in it.
func (p *pathfinding) receive(k peer.PublicKey, body []byte) error {
	var m path.Message
	if err := bounded.Unmarshal(body, auth.MaxPathMessage, &m); err != nil {
		return err
	}
	if major, _, _ := strings.Cut(m.Version, "."); major != "1" {
		return fmt.Errorf("it is of another version, and this gateway understands %s", path.MessageVersion)
	}
	m.Candidates = p.dialable(m.Candidates)
	p.finder.Receive(k, m)
	p.mail.Spoke(k)
	if m.Candidates != nil {
		p.mu.Lock()
		p.announced[k] = m.Candidates
		p.mu.Unlock()
	}
	return nil
}

// dialable are the candidates that may be dialled, the first of them, with sources that
// mean something here: the words are a stranger's.
func (p *pathfinding) dialable(list []discovery.Candidate) []discovery.Candidate {
	if list == nil {
		return nil
	}
	own, err := p.g.opts.OwnAddrs()
	forbidden := p.g.peers.Config().Discovery.Exclude
	out := []discovery.Candidate{}
	for _, c := range list {
		if err != nil || len(out) == maxAnnounced || discovery.Dialable(c.Addr, own, forbidden) != "" {
			continue
		}
		if !path.KnownSource(c.Source) {
			c.Source = discovery.SourceHost
		}
		out = append(out, c)
	}
	return out
}

// remember stores what peers have announced since the last time: not with each message,
// since a peer may send many and each costs a write.
func (p *pathfinding) remember() {
	told := p.takeAnnounced()
	p.g.peers.LearnAll(func(r *roster.Roster) { p.announce(r, told) })
}

// close ends the path finder's doings, and stores what is not stored yet.
func (p *pathfinding) close() {
	p.mail.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.asking.Wait()
	p.relays.Load().leave()
	p.announce(p.g.peers.Load(), p.takeAnnounced())
}

func (p *pathfinding) takeAnnounced() map[peer.PublicKey][]discovery.Candidate {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.announced
	p.announced = map[peer.PublicKey][]discovery.Candidate{}
	return out
}

// announce stores what peers announced that are there, in one write.
func (p *pathfinding) announce(r *roster.Roster, told map[peer.PublicKey][]discovery.Candidate) {
	all := make(map[peer.PublicKey][]state.Announced, len(told))
	for k, candidates := range told {
		if r.ByKey(k) == nil {
			continue
		}
		list := make([]state.Announced, 0, len(candidates))
		for _, c := range candidates {
			list = append(list, state.Announced{Address: c.Addr, Source: c.Source})
		}
		all[k] = list
	}
	if err := p.g.store.AllAnnounced(all); err != nil {
		p.g.log.Warn("what peers announce cannot be remembered; after a restart they may have to dial us", "peers", len(all), "error", err)
	}
}

// knownCandidates are where a peer may be, by ticket and configuration, and by where it
// was heard before.
func knownCandidates(m *roster.Member, before state.Observation) []discovery.Candidate {
	var out []discovery.Candidate
	add := func(a netip.AddrPort, source string) {
		// An address may be there by its source and as one that was heard from.
		if c := (discovery.Candidate{Addr: a, Source: source}); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	for _, c := range m.Candidates {
		add(c.Addr, c.Source)
	}
	for _, a := range before.Endpoints {
		add(a, discovery.SourcePeer)
	}
	return out
}

// announcedBefore are the candidates that a peer told when it joined, and in an earlier
// run.
func announcedBefore(m *roster.Member, before state.Observation) []discovery.Candidate {
	var out []discovery.Candidate
	for _, a := range before.Announced {
		out = append(out, discovery.Candidate{Addr: a.Address, Source: a.Source})
	}
	for _, c := range m.Announced {
		out = append(out, discovery.Candidate{Addr: c.Addr, Source: c.Source})
	}
	return out
}
