// Package gateway is the composition: one running gateway, made of the tunnel, the
// network stack, discovery, the state directory, the in-band services, the checks and
// the admin backend. The binary, the lab and the tests all run this.
//
//	config ─┐
//	state  ─┼─▶ roster ─▶ apply ─▶ tunnel · inbound · outbound · checks · identities
//	tickets ┘     (who)   (difference)
//
// Whatever changes (a reload, a redeemed ticket, a command), the same thing happens: a
// new roster is made of the three sources, and apply brings every part to it by
// difference, so that nothing is disturbed that did not change. Apply calls are
// serialised; readers see the last roster that was applied, whole.
//
// Time-driven work is in one loop that turns every second or two (loop.go): throughput,
// endpoints worth remembering, first handshakes, expiring tickets.
package gateway

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/enrol"
	"github.com/postern-dev/postern/control/exchange"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/issuer"
	"github.com/postern-dev/postern/control/logtail"
	"github.com/postern-dev/postern/control/metrics"
	"github.com/postern-dev/postern/control/neighbours"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/plane"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// An issuer in the gateway's cluster, what it is made of, and what one may tell besides.
type (
	ClusterIssuer        = issuer.Cluster
	ClusterIssuerOptions = issuer.ClusterOptions
	Incarnations         = issuer.Incarnations
)

// Options of a gateway. Config is required; the rest has defaults.
type Options struct {
	Config *config.Resolved
	// Version is shown in status and told to peers.
	Version string
	// NewUnderlay opens the UDP socket; nil is underlay.New. The lab gives sockets of
	// its in-process internet.
	NewUnderlay func(underlay.Options) *underlay.Bind
	// HostAddrs lists this machine's addresses; nil is discovery.InterfaceAddrs.
	HostAddrs func() ([]netip.Addr, error)
	// OwnAddrs lists all its addresses, of bridges and tunnels too: no peer is sought
	// there. nil is HostAddrs or, without that, discovery.OwnAddrs.
	OwnAddrs func() ([]netip.Addr, error)
	// Networks lists the networks that this machine is in; nil is what its interfaces say
	// or, when HostAddrs is given, a /24 or /64 around each of those.
	Networks func() ([]netip.Prefix, error)
	// LinkMTU is the smallest MTU of the interfaces that lead out, in bytes, 0 when it is
	// not known; nil is discovery.LinkMTU, or nothing when HostAddrs is given.
	LinkMTU func() (int, error)
	// Resolve looks up a host name of the discovery settings; nil asks the system.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// LANInterfaces lists the interfaces on which gateways are looked for, and ListenLAN
	// opens a socket for multicast DNS on one; nil are this machine's.
	LANInterfaces func() ([]lan.Interface, error)
	ListenLAN     func(lan.Interface, lan.Family) (lan.Conn, error)
	// ReadConfig reads the configuration again, for a reload; nil has none to read.
	ReadConfig func() (*config.Resolved, error)
	// NewClusterIssuer makes the issuer of spec.services.auth.issuer.serviceAccount; nil has
	// no cluster to issue in.
	NewClusterIssuer func(ClusterIssuerOptions) (ClusterIssuer, error)
	// CheckInterval and CheckRetry pace the checks; 0 takes package check's defaults.
	CheckInterval, CheckRetry time.Duration
	// ClusterPeers are the configured peers of a gateway in a cluster until SetPeers.
	ClusterPeers []config.Peer
	// AdmitLocal says why whoever connects to a listener for a peer's services may not use
	// it; nil admits everybody who can connect. Each connection waits for it on its own.
	AdmitLocal func(peer string, from netip.AddrPort) error
	// LocalHost is where listeners without an address listen; the zero value is 127.0.0.1.
	LocalHost netip.Addr
	// OnSuperseded is told that a peer says that it has heard a later start of a gateway with
	// this one's key: boot is its number, in the order of the state's. It may be called again
	// and again, and must not block. A peer may say anything. nil: nobody is told.
	OnSuperseded func(peer string, boot uint64)
	// State keeps the state where it outlives the directory; nil is the directory alone.
	State state.Backend
	// Root is the file system whose cgroup tells of this process's limits; nil looks at none.
	// With it the process is the gateway's own, which gives memory back when it rests.
	Root fs.FS
	// Logger gets everything, audit records included, within bounds (package logtail); nil
	// discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.NewUnderlay == nil {
		o.NewUnderlay = underlay.New
	}
	given := o.HostAddrs
	own, link := o.HostAddrs, func() (int, error) { return 0, nil } // of a host that is not this one
	if o.HostAddrs == nil {
		o.HostAddrs, own, link = discovery.InterfaceAddrs, discovery.OwnAddrs, discovery.LinkMTU
	}
	if o.OwnAddrs == nil {
		o.OwnAddrs = own
	}
	if o.Networks == nil {
		o.Networks = interfaceNetworks
		if given != nil {
			o.Networks = func() ([]netip.Prefix, error) { return networksAround(given) }
		}
	}
	if o.LinkMTU == nil {
		o.LinkMTU = link
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Gateway is a running gateway. It is an admin.Backend. All methods are safe for
// concurrent use.
type Gateway struct {
	// Immutable after Start.
	opts      Options
	log       *slog.Logger
	tail      *logtail.Tail
	audit     *audit.Log
	key       peer.PrivateKey
	publicKey peer.PublicKey // of key: working it out takes 40 µs
	store     *state.Store
	mtu       int // the overlay's, in bytes
	plane     *plane.Plane
	paths     *paths.Finder
	found     *neighbours.Search
	enrolment *enrol.Registrar
	peers     *roster.Registry
	flows     *forward.Flows
	outbound  *forward.Outbound
	checks    *check.Runner
	exchange  *exchange.Exchange
	recent    *recent
	auth      *issuer.Service
	rates     *rates
	beat      *metrics.Heartbeat
	transit   *transitLog
	startedAt time.Time

	// The life of the gateway's own goroutines.
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	closing sync.Once
	// portsDue holds one wish that the ports of listeners be kept.
	portsDue chan struct{}

	// reloading is held from the reading of a configuration to its application, so that
	// of two the one that was read last is in force. It is taken before the registry's lock.
	reloading sync.Mutex
	// reloads counts them, by result.
	reloads struct{ success, failed atomic.Uint64 }
	// metrics is nil when there is none; it is the one's who may change the peers.
	metrics *metrics.Server
	// unstored are the ports that could not be remembered, and were complained of; those of
	// the one who may change the peers.
	unstored map[state.Listener]uint16
	// onChange is told of changes.
	onChange atomic.Pointer[[]func()]
	// problems are those that others than the gateway found.
	problems problems
}

// Start brings a gateway up: the state directory is locked, the port is open, peers with
// known addresses are being dialled. ctx bounds the start only. The errors say what could
// not be opened and what to do; one that the configuration is to blame for is a
// config.Problem. On an error nothing is left open.
func Start(ctx context.Context, o Options) (*Gateway, error) {
	o = o.withDefaults()
	tail := logtail.New(o.Logger.Handler())
	o.Logger = slog.New(tail)
	if o.Config.Kubernetes != nil {
		o.Config = o.Config.WithPeers(o.ClusterPeers)
	}
	g := &Gateway{
		opts: o, log: o.Logger, tail: tail, audit: audit.New(o.Logger), startedAt: time.Now(),
		recent: newRecent(), rates: newRates(), beat: metrics.NewHeartbeat(heartbeatLimit),
		portsDue: make(chan struct{}, 1),
		unstored: map[state.Listener]uint16{},
	}
	g.transit = newTransitLog(g.audit, func(a netip.Addr) string { p, _ := g.peers.Load().Resolve(a); return p.Name })
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(err, g.close(expired()))
	}
	g.wg.Go(func() { newTicker(g).run(g.ctx) })
	g.wg.Go(func() { g.paths.Run(g.ctx) })
	g.wg.Go(func() { g.found.Run(g.ctx) })
	g.wg.Go(func() { g.transit.run(g.ctx) })
	g.wg.Go(func() { g.exchange.Run(g.ctx) })
	g.log.Info("gateway is up", "name", o.Config.Name, "publicKey", g.publicKey.String(),
		"address", peer.OverlayAddr(g.publicKey).String(), "port", g.plane.Bind.Port(), "version", o.Version)
	return g, nil
}

// open makes the parts from the ground up.
func (g *Gateway) open(ctx context.Context) error {
	cfg := g.opts.Config
	var err error
	if g.store, err = state.Open(cfg.StateDir, g.log, state.WithBackend(g.opts.State)); err != nil {
		return err
	}
	if g.key = cfg.PrivateKey; g.key.IsZero() {
		if g.key, err = g.store.PrivateKey(); err != nil {
			return err
		}
	}
	g.publicKey = g.key.Public()
	enrol.TakeRekeyed(g.store, g.publicKey, g.log)
	g.flows = forward.NewFlows(forward.Limits{PeerRate: cfg.ConnectionRate})
	inBand := forward.NewListener(net.TCPAddrFromAddrPort(netip.AddrPortFrom(peer.OverlayAddr(g.publicKey), api.PortAuth)))
	if g.peers, err = roster.Open(roster.Options{
		Key: g.key, Config: cfg, Store: g.store, Flows: g.flows, Auth: inBand, SetProblems: g.SetProblems,
		StartedAt: g.startedAt, Audit: g.audit, Logger: g.log,
	}); err != nil {
		return err
	}
	g.outbound = forward.NewOutbound(g.flows, g.outboundOptions())
	g.mtu = g.overlayMTU(cfg)
	g.tellOfJumboFrames(cfg)
	if g.paths, err = paths.New(paths.Options{
		Ctx: g.ctx, Key: g.key, Config: cfg, MTU: g.mtu, Store: g.store, Peers: g.peers, Logger: g.log,
		Host: paths.Host{HostAddrs: g.opts.HostAddrs, OwnAddrs: g.opts.OwnAddrs, Resolve: g.opts.Resolve},
		Tell: paths.Tell{
			Moved: func(peer string) { g.checks.Wake(peer) }, State: g.announceChange,
			NetworkChanged: func() { g.found.NetworkChanged() }, Superseded: g.opts.OnSuperseded,
		},
	}); err != nil {
		return err
	}
	if g.found, err = neighbours.New(neighbours.Options{
		Key: g.key, Store: g.store, Peers: g.peers, Port: g.Port, OwnAddrs: g.opts.OwnAddrs,
		Interfaces: g.opts.LANInterfaces, Listen: g.opts.ListenLAN, Root: g.opts.Root, SetProblems: g.SetProblems,
		Moved:     func(r *roster.Roster) { g.paths.SetPeers(r, g.found.Places(r)); g.announceChange() },
		Connected: g.paths.Connected, UserOf: func(name string) string { return g.auth.UserOf(name) }, Logger: g.log,
	}); err != nil {
		return err
	}
	if err := g.openPlane(cfg); err != nil {
		return err
	}
	g.paths.Attach(g.plane)
	g.enrolment = enrol.New(enrol.Options{
		Key: g.key, Store: g.store, Peers: g.peers, Paths: g.paths, Stack: g.plane.Stack, OwnAddrs: g.opts.OwnAddrs,
		OpenPlane: func(key peer.PrivateKey) (*plane.Plane, error) {
			return plane.Open(plane.Options{Key: key, NewUnderlay: g.opts.NewUnderlay, MTU: g.overlayMTU(g.peers.Config()), Logger: g.log})
		},
		UserOf: func(name string) string { return g.auth.UserOf(name) }, UserFor: func(name string) string { return g.auth.UserFor(name) },
		While: g.whileRunning, Audit: g.audit, Logger: g.log,
	})
	g.exchange = exchange.New(exchange.Options{
		Ctx: g.ctx, Store: g.store, Peers: g.peers, Paths: g.paths, Stack: g.plane.Stack, Tunnel: g.plane.Engine,
		Shown: func() check.Own { return g.shown(g.peers.Config(), g.paths.Agent().Snapshot()) },
		Request: func(m *roster.Member) func(context.Context, []byte) (auth.Grant, error) {
			return exchange.RequestIdentity(g.peers.View, g.plane.Stack.DialContext, m)
		},
		Followed: g.setLocals, Changed: g.announceChange, Logger: g.log,
	})
	if g.auth, err = issuer.Open(issuer.Options{
		Key: g.key, Store: g.store, Peers: g.peers, Listener: inBand, NewClusterIssuer: g.opts.NewClusterIssuer, SetProblems: g.SetProblems,
		Server: auth.ServerOptions{
			Name: cfg.Name, Software: "postern " + g.opts.Version, Redeemer: g.enrolment, OnRotation: g.enrolment.OnRotation,
			OnPath: g.paths.Receive, HeardBoot: g.paths.HeardBoot, OnReport: g.exchange.Receive, Report: g.exchange.ForHello,
		},
		Audit: g.audit, Logger: g.log,
	}); err != nil {
		return err
	}
	g.checks = check.NewRunner(check.Options{
		Dial: g.dialOverlay, Ping: g.pingKnown, Facts: g.facts, Brief: g.brief, Own: g.own, OnHello: g.exchange.HeardHello,
		Changed: g.verdictChanged, Root: g.opts.Root,
		Interval: g.opts.CheckInterval, Retry: g.opts.CheckRetry, Logger: g.log,
	})
	g.exchange.Attach(g.auth, g.checks)
	g.subscribe()
	if g.metrics, err = g.serveMetrics(ctx, cfg); err != nil {
		return err
	}
	return g.peers.Bring(g.plane.Engine, g.plane.Stack)
}

// subscribe has the parts follow who the peers are. An issuer comes first, so that nobody who
// is gone gets an identity; then those that seek peers, lead to them and check them. The
// verdicts on a peer that is gone are not those on another of its name.
func (g *Gateway) subscribe() {
	g.peers.Subscribe(g.auth.Follow)
	g.peers.Subscribe(g.paths.Follow)
	g.peers.Subscribe(func(old, next *roster.Roster) {
		g.paths.SetPeers(next, g.found.Places(next))
		g.setLocals()
		g.portsSoon()
		g.checkPeers(old, next)
		g.exchange.Follow(old, next)
		g.forget(old, next)
		g.announceChange()
	})
}

// checkPeers has the peers checked.
func (g *Gateway) checkPeers(old, next *roster.Roster) {
	if gone := old.Without(next); len(gone) > 0 {
		g.checks.SetPeers(slices.DeleteFunc(next.Names(), func(name string) bool {
			return slices.ContainsFunc(gone, func(m *roster.Member) bool { return m.Name == name })
		}))
	}
	g.checks.SetPeers(next.Names())
}

// forget drops what was seen of those that are gone.
func (g *Gateway) forget(old, next *roster.Roster) {
	for _, m := range old.Without(next) {
		if next.ByKey(m.Key) == nil {
			g.recent.forget(m.Key)
		}
	}
}

// verdictChanged has a peer, and whoever else asked for it, hear of a verdict on it.
func (g *Gateway) verdictChanged(name string) {
	g.exchange.VerdictChanged(name)
	g.announceChange()
}

func (g *Gateway) openPlane(cfg *config.Resolved) error {
	var err error
	g.plane, err = plane.Open(plane.Options{
		Key: g.key, Port: cfg.ListenPort, MTU: g.mtu, NewUnderlay: g.opts.NewUnderlay,
		OnSTUN:    g.paths.HandleSTUN,
		OnEvent:   g.paths.Heard,
		OnTCP:     func(in *netstack.Incoming) { g.peers.Inbound().Handle(forward.Wrap(in)) },
		OnTransit: g.transit.report,
		Logger:    g.log,
	})
	if errors.Is(err, tunnel.ErrPortInUse) {
		return cfg.Blame("spec.listen.port", err)
	}
	return err
}

// Close drains and ends the gateway: no new connections, open ones may finish until ctx
// ends and are reset then. Everything is closed on return. Only the first call does
// anything, and the others wait for it.
func (g *Gateway) Close(ctx context.Context) error {
	var err error
	g.closing.Do(func() {
		g.log.Info("gateway stops", "openConnections", total(g.flows.Count()))
		err = g.close(ctx)
		g.tail.End(ctx, time.Now())
		g.log.Info("gateway has stopped")
	})
	return err
}

// close takes down what open made, in the opposite order, as far as it got.
func (g *Gateway) close(ctx context.Context) error {
	if g.store != nil && ctx.Err() != nil {
		g.store.Interrupt() // nothing may be waited for, so not for this
	}
	if g.peers != nil {
		g.peers.Close()
	}

	var errs []error
	var locals []forward.LocalState
	if g.outbound != nil {
		locals = g.outbound.Locals()
		g.outbound.Close()
	}
	if g.flows != nil {
		if err := g.flows.Drain(ctx); err != nil {
			g.log.Info("connections were reset that did not end in time", "reason", err)
			time.Sleep(roster.ResetFlushDelay)
		}
	}
	g.cancel()
	if g.checks != nil {
		g.checks.Close()
	}
	if g.auth != nil {
		g.auth.Close()
	}
	g.wg.Wait()
	if g.paths != nil {
		g.paths.Close()
	}
	if g.exchange != nil {
		g.exchange.Close()
	}
	if g.metrics != nil {
		g.shutMetrics(g.metrics)
	}
	if g.plane != nil {
		g.rememberPorts(locals) // which the loop may not have come to
		errs = append(errs, g.plane.Close())
	}
	if g.store != nil {
		errs = append(errs, g.store.Close())
	}
	return errors.Join(errs...)
}

// whileRunning is ctx that ends with the gateway as well: a command must not outlive it.
func (g *Gateway) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() { cancel(roster.ErrStopping) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

// expired is a context that has ended: for closing without waiting.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func total(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
