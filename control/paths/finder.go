// Package paths finds the path to each peer: it joins the path finder of package discovery to
// the socket and the relays below, the tunnel and the network stack above, and the path finders
// of the peers.
//
//	probes, answers ◀─▶ socket, relays          messages ◀─▶ POST /v1/path, in-band
//	          path finder ──routing──▶ tunnel (initiations, data), network stack (MTU)
//	          path finder ◀─evidence── tunnel (handshake done, silent), flows (traffic)
package paths

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/mail"
	"github.com/postern-dev/postern/control/plane"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/egress"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// maxAnnounced bounds the candidates accepted from a peer: more than any honest peer has.
	maxAnnounced = 24
)

// Options configure a Finder.
type Options struct {
	// Ctx ends with the gateway.
	Ctx    context.Context
	Key    peer.PrivateKey
	Config *config.Resolved // at the start
	MTU    int              // the overlay's, in bytes
	Host   Host
	Store  *state.Store
	Peers  *roster.Registry
	Tell   Tell
	Logger *slog.Logger
}

// Host describes this host's network.
type Host struct {
	// HostAddrs returns the addresses to announce, OwnAddrs all of the host's; peers are never
	// dialled at the latter.
	HostAddrs, OwnAddrs func() ([]netip.Addr, error)
	// Inside are networks whose addresses are announced only if STUN servers see them.
	Inside []netip.Prefix
	// Resolve looks up a host name; nil means the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Egress opens outbound TCP connections.
	Egress *egress.Dialer
}

// Tell holds the callbacks. None may block.
type Tell struct {
	// Moved is called when the path to a peer changed, or the peer came or went.
	Moved func(peer string)
	// Shook is called after each handshake with a peer but the first: earlier findings may no
	// longer hold.
	Shook func(peer string)
	// State is called when a peer came or went.
	State func()
	// Seen is called with each peer's state at each look.
	Seen func(now time.Time, m *roster.Member, s Seen)
	// Noted is called with the events of a peer's path.
	Noted func(peer string, e api.HistoryEvent)
	// NetworkChanged is called when this host's networks changed.
	NetworkChanged func()
	// Superseded is called when a peer has heard a later start of a gateway with this one's key; it
	// may be nil.
	Superseded func(peer string, boot uint64)
}

// Tunnel is what a Finder needs of the engine.
type Tunnel interface {
	SetPaths(k peer.PublicKey, paths tunnel.Paths) error
	Renew(k peer.PublicKey, wait time.Duration) error
	Peer(k peer.PublicKey) (tunnel.PeerStats, bool)
	Snapshot() tunnel.Snapshot
	Sightings(k peer.PublicKey, ips []netip.Addr) tunnel.Sightings
	Strangers() []tunnel.KeySight
}

// Finder connects the path finder to the socket and the relays below, the tunnel and the network
// stack above, and the peers' path finders in-band. It is safe for concurrent use.
type Finder struct {
	o      Options
	log    *slog.Logger
	peers  *roster.Registry
	boot   uint64 // the number of this start
	finder *discovery.Pathfinder
	mail   *mail.Sender[path.Message]
	tunnel Tunnel // the plane's, since Attach
	plane  *plane.Plane
	own    own

	relaying   relaying
	journal    *journal
	recent     *recent
	superseded supersession
	strangers  strangers
	memory
}

// memory is what a Finder remembers about peers, and its background work.
type memory struct {
	mu sync.Mutex
	// announced are candidates received from peers and not stored yet.
	announced map[peer.PublicKey][]discovery.Candidate
	// selected are the paths in use. A new path is a reason to check the peer; new candidates alone
	// are not.
	selected map[peer.PublicKey]peer.Path
	closed   bool
	beside   sync.WaitGroup // nothing is added once closed
}

// relaying holds the relay allocations of this gateway's socket.
type relaying struct {
	ids    allocationIDs
	relays atomic.Pointer[Relays]
	// permitted are the addresses that the allocations admit.
	permitted atomic.Pointer[[]netip.Addr]
	storing   sync.Mutex // serialises storeGrants, so that the last list stays
	begun     bool       // useRelays was called before; guarded by Finder.mu, as is grants
	// grants are the latest allocations over UDP.
	grants []relay.Grant
}

// New returns a path finder that does nothing before Run.
func New(o Options) (*Finder, error) {
	boot, err := o.Store.Boot(time.Now())
	if err != nil {
		o.Logger.Warn("failed to store the boot number; if the clock goes back, peers reject this gateway's probes until it catches up",
			"error", err)
	}
	p := &Finder{
		o: o, log: o.Logger, peers: o.Peers, boot: boot, journal: newJournal(), recent: newRecent(),
		own:    own{regather: wake.New()},
		memory: memory{announced: map[peer.PublicKey][]discovery.Candidate{}, selected: map[peer.PublicKey]peer.Path{}},
	}
	p.mail = p.newMail()
	p.relaying.relays.Store(&Relays{cancel: func(error) {}})
	cfg := o.Config
	if p.finder, err = discovery.NewPathfinder(discovery.PathfinderOptions{
		PrivateKey: o.Key, BootID: boot, Send: p.send, Route: p.route, Handshake: p.handshake,
		Tell: p.mail.Post, Permit: p.permit, CheckRelays: func() { p.relays().check() },
		Local: func() path.Local { return p.Agent().Local() }, Own: o.Host.OwnAddrs,
		Forbidden: cfg.Discovery.Exclude, Resolve: o.Host.Resolve, Keepalive: cfg.Discovery.Keepalive, OverlayMTU: o.MTU,
		OnSuperseded: p.HearsOfBoot, OnRemoved: p.removed, Noted: p.noted, Logger: o.Logger,
	}); err != nil {
		return nil, fmt.Errorf("start the path finder: %w", err)
	}
	agent, err := p.newAgent(cfg)
	if err != nil {
		return nil, err
	}
	p.own.agent.Store(agent)
	return p, nil
}

// Attach connects the plane, which delivers arriving packets to HandleSTUN and evidence to Heard,
// and starts allocating on the relays.
func (p *Finder) Attach(pl *plane.Plane) {
	p.plane, p.tunnel = pl, pl.Engine
	p.useRelays(p.o.Config.Discovery.TURNServers)
}

// Prepare creates everything that can fail for another configuration; commit puts it into effect.
func (p *Finder) Prepare(next *config.Resolved) (commit func(), err error) {
	old, agent := p.peers.Config(), (*discovery.Agent)(nil)
	if !sameDiscovery(old.Discovery, next.Discovery) {
		if agent, err = p.newAgent(next); err != nil {
			return nil, err
		}
	}
	return func() {
		if agent != nil {
			p.replaceAgent(agent)
		}
		p.o.Host.Egress.Use(next.Proxy)
		p.finder.SetForbidden(next.Discovery.Exclude)
		if !reflect.DeepEqual(old.Discovery.TURNServers, next.Discovery.TURNServers) {
			p.useRelays(next.Discovery.TURNServers)
		} else if old.Proxy != next.Proxy {
			p.relays().check()
		}
	}, nil
}

func sameDiscovery(a, b config.Discovery) bool {
	return slices.Equal(a.Advertise, b.Advertise) && slices.Equal(a.STUNServers, b.STUNServers) && slices.Equal(a.Exclude, b.Exclude) &&
		a.PortMapping == b.PortMapping
}

// Run gathers candidates and finds paths until ctx ends.
func (p *Finder) Run(ctx context.Context) {
	var gathering sync.WaitGroup
	gathering.Go(func() { p.gather(ctx) })
	defer gathering.Wait()
	if err := p.finder.Run(ctx); !errors.Is(err, context.Canceled) {
		p.log.Error("path discovery stopped", "error", err)
	}
}

// Probe measures a round trip between the sockets.
func (p *Finder) Probe(ctx context.Context, k peer.PublicKey) (time.Duration, error) {
	rtt, _, err := p.finder.Probe(ctx, k)
	return rtt, err
}

// removed handles a peer's word that it has removed this gateway.
func (p *Finder) removed(k peer.PublicKey) {
	if m := p.peers.Load().ByKey(k); m != nil {
		p.log.Warn("peer reports that it has removed this gateway", "code", string(catalogue.RemovedByPeer), "peer", m.Name)
		p.o.Tell.Moved(m.Name)
		p.o.Tell.State()
	}
}

// relays returns the current allocations.
func (p *Finder) relays() *Relays { return p.relaying.relays.Load() }

func (p *Finder) send(packet []byte, to peer.Path, ttl int, dontFragment bool) error {
	return p.plane.Bind.WriteProbe(packet, to, underlay.SendOptions{TTL: ttl, DontFragment: dontFragment})
}

// HandleSTUN handles a packet that arrived at the socket or through a relay: a peer's probe, or a
// STUN server's answer.
func (p *Finder) HandleSTUN(packet []byte, from peer.Path) {
	if !p.finder.HandleSTUN(packet, from) {
		p.Agent().HandleSTUN(packet, from)
	}
}

// route makes the tunnel send on the path finder's choice of path, in packets that fit.
func (p *Finder) route(k peer.PublicKey, r path.Routing) {
	if err := p.tunnel.SetPaths(k, tunnel.Paths{Initiate: r.Initiate, Selected: r.Selected}); err != nil {
		p.log.Debug("ignoring a path of a removed peer", "peer", p.peers.NameOf(k), "error", err)
		return
	}
	p.plane.Stack.SetPathMTU(peer.OverlayAddr(k), r.MTU)
	p.mu.Lock()
	moved := p.selected[k] != r.Selected
	p.selected[k] = r.Selected
	p.mu.Unlock()
	if moved && r.Selected != (peer.Path{}) {
		p.plane.Stack.PathChanged(peer.OverlayAddr(k))
	}
	if m := p.peers.Load().ByKey(k); m != nil && moved {
		p.o.Tell.Moved(m.Name)
	}
}

// Forget drops the data of removed peers. It is for [roster.Registry.Subscribe], after SetPeers.
func (p *Finder) Forget(old, next *roster.Roster) {
	for _, m := range old.Without(next) {
		if k := m.Key; next.ByKey(k) == nil {
			p.journal.drop(k)
			p.recent.forget(k)
			p.mail.Forget(k)
			p.plane.Stack.SetPathMTU(peer.OverlayAddr(k), 0)
			p.mu.Lock()
			delete(p.selected, k)
			delete(p.announced, k)
			p.mu.Unlock()
		}
	}
}

// peerDials is how long a peer that has just restarted, or has just found a path, gets to start the
// handshake itself.
const peerDials = time.Second

// handshake starts a new session, because the peer has lost the old one, or to prove that a path
// carries more than probes.
func (p *Finder) handshake(k peer.PublicKey) {
	if err := p.tunnel.Renew(k, peerDials); err != nil {
		p.log.Debug("failed to start a handshake", "peer", p.peers.NameOf(k), "error", err)
	}
}

// Heard handles the tunnel's evidence about paths.
func (p *Finder) Heard(e tunnel.Event) {
	switch e.Kind {
	case tunnel.HandshakeDone:
		p.finder.HandshakeDone(e.Peer, e.Path)
	case tunnel.Quiet:
		p.finder.Doubt(e.Peer)
		p.ask(e.Peer)
	case tunnel.Silent:
		p.finder.Silent(e.Peer)
		p.relays().check()
	}
}

const (
	// asks and askPause are how often a quiet peer is sent an echo: within the 3 s that the tunnel
	// then waits, and often enough to survive some loss.
	asks     = 3
	askPause = 800 * time.Millisecond
)

// ask sends a quiet peer echoes, which it answers if it hears us.
func (p *Finder) ask(k peer.PublicKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.beside.Go(func() {
		for range asks {
			ctx, cancel := context.WithTimeout(p.o.Ctx, askPause)
			_, err := p.plane.Stack.Ping(ctx, peer.OverlayAddr(k), 0)
			if err != nil {
				<-ctx.Done() // do not repeat one that fails immediately
			}
			cancel()
			if err == nil || p.o.Ctx.Err() != nil {
				return
			}
		}
	})
}

// Close stops the path finder and stores what is not stored yet.
func (p *Finder) Close() {
	p.mail.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.beside.Wait()
	if p.plane != nil { // nil if the start failed before
		p.keepEndpoints()
	}
	p.relays().leave()
	p.announce(p.peers.Load(), p.takeAnnounced())
}
