// Package gateway composes a running gateway from the parts below control/, the tunnel and the
// network stack. It opens, connects and closes them, and is the backend of the admin socket. The
// binary, the lab and the tests all run it.
//
// Every change of the peers takes the same way, be it a reload, a redeemed ticket or a command:
// package roster makes a new roster and applies the difference, which leaves unchanged peers alone.
// Then it notifies the parts in the order of [Gateway.subscribe].
//
// One loop (loop.go) does all work that depends on time. It turns every second or two and calls
// each part.
package gateway

import (
	"context"
	"errors"
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
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/clusterset"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/enrol"
	"github.com/postern-dev/postern/control/exchange"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/history"
	"github.com/postern-dev/postern/control/issuer"
	"github.com/postern-dev/postern/control/logtail"
	"github.com/postern-dev/postern/control/metrics"
	"github.com/postern-dev/postern/control/neighbours"
	"github.com/postern-dev/postern/control/outbound"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/plane"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery/egress"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Gateway is a running gateway. It is an admin.Backend. All methods are safe for
// concurrent use.
type Gateway struct {
	opts Options
	logs
	self
	ground
	parts
	life
	watched
	configured
	changes
}

// logs is where events are written.
type logs struct {
	log   *slog.Logger
	tail  *logtail.Tail
	audit *audit.Log
}

// self is this gateway's identity.
type self struct {
	key       peer.PrivateKey
	publicKey peer.PublicKey // of key: deriving it takes 40 µs
	startedAt time.Time
}

// ground is what the parts are built on.
type ground struct {
	store *state.Store
	flows *forward.Flows
	plane *plane.Plane
	// egress opens outbound TCP connections.
	egress *egress.Dialer
}

// parts are in dependency order: none knows a later one. See the package's README.
type parts struct {
	peers     *roster.Registry
	auth      *issuer.Service
	paths     *paths.Finder
	found     *neighbours.Search
	enrolment *enrol.Registrar
	exchange  *exchange.Exchange
	services  *outbound.Services
	checks    *check.Runner
	clusters  *clusterset.Clusterset // nil: takes no part in cluster services
}

// life holds the gateway's own goroutines.
type life struct {
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	closing  sync.Once
	stopping atomic.Bool // set when closing begins
}

// watched is what the gateway records while it runs.
type watched struct {
	rates   *rates
	history *history.History
	beat    *metrics.Heartbeat
	transit *audit.TransitLog
}

// configured is what only the configuration decides.
type configured struct {
	// reloading is held from reading a configuration until it is applied, so that the one read last
	// ends up in force. It is locked before the registry.
	reloading sync.Mutex
	// reloads counts reloads by result.
	reloads struct{ success, failed atomic.Uint64 }
	// undoAgain is when to retry rolling back an unconfirmed configuration after a failure. Only
	// the ticker uses it.
	undoAgain time.Time
	// metrics is nil if metrics are not served. It is guarded by the registry's lock.
	metrics *metrics.Server
}

// changes holds the change subscribers and the problems that they see.
type changes struct {
	// onChange is called on changes.
	onChange atomic.Pointer[[]func()]
	// problems are those found by other components.
	problems problems
}

// Start brings a gateway up: it locks the state directory, opens the port and starts dialling peers
// with known addresses. ctx bounds only the start. Errors say what could not be opened and how to
// fix it; those caused by the configuration are a config.Problem. On an error everything is closed
// again.
func Start(ctx context.Context, o Options) (*Gateway, error) {
	o = o.withDefaults()
	tail := logtail.New(o.Logger.Handler())
	o.Logger = slog.New(tail)
	if o.Config.Kubernetes != nil {
		o.Config = o.Config.WithPeers(o.ClusterPeers)
	}
	g := &Gateway{
		opts: o, logs: logs{log: o.Logger, tail: tail, audit: audit.New(o.Logger)}, self: self{startedAt: time.Now()},
		watched: watched{rates: newRates(), beat: metrics.NewHeartbeat(heartbeatLimit)},
	}
	g.history = history.New(g.startedAt)
	g.transit = audit.NewTransitLog(g.audit, func(a netip.Addr) string { p, _ := g.peers.Load().Resolve(a); return p.Name })
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(err, g.close(expired()))
	}
	g.wg.Go(func() { newTicker(g).run(g.ctx) })
	g.wg.Go(func() { g.paths.Run(g.ctx) })
	g.wg.Go(func() { g.found.Run(g.ctx) })
	g.wg.Go(func() { g.transit.Run(g.ctx) })
	g.wg.Go(func() { g.exchange.Run(g.ctx) })
	if g.clusters != nil {
		g.wg.Go(func() { g.clusters.Run(g.ctx) })
		if g.plain() {
			g.wg.Go(g.showServices)
		}
	}
	g.log.Info("gateway is up", "name", o.Config.Name, "publicKey", g.publicKey.String(),
		"address", peer.OverlayAddr(g.publicKey).String(), "port", g.plane.Bind.Port(), "version", o.Version)
	return g, nil
}

// open creates the parts from the bottom up.
func (g *Gateway) open(ctx context.Context) error {
	cfg := g.opts.Config
	var err error
	if g.store, err = state.Open(cfg.StateDir, g.log, state.WithBackend(g.opts.State)); err != nil {
		return err
	}
	cfg = g.confirmed(cfg)
	g.opts.Config = cfg
	if g.key = cfg.PrivateKey; g.key.IsZero() {
		if g.key, err = g.store.PrivateKey(); err != nil {
			return err
		}
	}
	g.publicKey = g.key.Public()
	enrol.TakeRekeyed(g.store, g.publicKey, g.log)
	g.egress = egress.New(cfg.Proxy)
	g.flows = forward.NewFlows(forward.Limits{PeerRate: cfg.ConnectionRate})
	inBand := forward.NewListener(net.TCPAddrFromAddrPort(netip.AddrPortFrom(peer.OverlayAddr(g.publicKey), api.PortAuth)))
	if g.peers, err = roster.Open(roster.Options{
		Key: g.key, Config: cfg, Store: g.store, Flows: g.flows, Auth: inBand, SetProblems: g.SetProblems,
		StartedAt: g.startedAt, Audit: g.audit, Logger: g.log, Namespace: g.opts.Clusterset.namespace(),
	}); err != nil {
		return err
	}
	if err := g.openPaths(cfg); err != nil {
		return err
	}
	if err := g.openInBand(cfg, inBand); err != nil {
		return err
	}
	g.checks = check.NewRunner(check.Options{
		Dial: g.dialOverlay, Ping: g.pingKnown, Facts: g.facts, Brief: g.brief, Own: g.own, Ask: g.paths.Ask, Doubt: g.paths.Doubt, Reprobe: g.paths.Reprobe, OnHello: g.heardHello,
		Changed: g.verdictChanged, Root: g.opts.Root, Network: check.Network{Egress: g.egress},
		State: g.store.Try, Interval: g.opts.CheckInterval, Retry: g.opts.CheckRetry, Logger: g.log,
	})
	g.exchange.Attach(g.auth, g.checks)
	g.services.Attach(g.checks)
	g.subscribe()
	if g.metrics, err = g.serveMetrics(ctx, cfg); err != nil {
		return err
	}
	return g.peers.Bring(g.plane.Engine, g.plane.Stack)
}

// openPaths creates the path finder and the plane over which peers are reached.
func (g *Gateway) openPaths(cfg *config.Resolved) (err error) {
	mtu := g.overlayMTU(cfg)
	g.tellOfJumboFrames(cfg)
	if g.paths, err = paths.New(paths.Options{
		Ctx: g.ctx, Key: g.key, Config: cfg, MTU: mtu, Store: g.store, Peers: g.peers, Logger: g.log,
		Host: paths.Host{HostAddrs: g.opts.HostAddrs, OwnAddrs: g.opts.OwnAddrs, Inside: g.opts.Inside, Resolve: g.opts.Resolve, Egress: g.egress},
		Tell: paths.Tell{
			Moved: func(peer string) { g.checks.Wake(peer) }, Shook: g.shook, State: g.announceChange,
			Seen: g.seen, Noted: g.history.Note,
			NetworkChanged: func() { g.found.NetworkChanged() }, Superseded: g.opts.OnSuperseded,
		},
	}); err != nil {
		return err
	}
	if g.found, err = neighbours.New(neighbours.Options{
		Key: g.key, Store: g.store, Peers: g.peers, Port: g.Port, OwnAddrs: g.opts.OwnAddrs,
		Interfaces: g.opts.LANInterfaces, Listen: g.opts.ListenLAN, Root: g.opts.Root, SetProblems: g.SetProblems,
		Moved:     func(r *roster.Roster) { g.paths.SetPeers(r, g.found.Places(r)); g.announceChange() },
		Connected: g.paths.Connected, UserOf: g.userOf, Logger: g.log,
	}); err != nil {
		return err
	}
	if err := g.openPlane(cfg, mtu); err != nil {
		return err
	}
	g.paths.Attach(g.plane)
	return nil
}

// shook rechecks a peer that was judged unreachable when a handshake shows that it is there.
func (g *Gateway) shook(peer string) {
	if g.checks.Finding(peer, api.ServiceGateway).Failed() {
		g.checks.Wake(peer)
	}
}

// openInBand creates what serves and queries peers inside the tunnel.
func (g *Gateway) openInBand(cfg *config.Resolved, inBand *forward.Listener) (err error) {
	g.enrolment = enrol.New(enrol.Options{
		Key: g.key, Store: g.store, Peers: g.peers, Paths: g.paths, Stack: g.plane.Stack, OwnAddrs: g.opts.OwnAddrs,
		OpenPlane: func(key peer.PrivateKey) (*plane.Plane, error) {
			return plane.Open(plane.Options{Key: key, NewUnderlay: g.opts.NewUnderlay, MTU: g.overlayMTU(g.peers.Config()), Logger: g.log})
		},
		UserOf: g.userOf, UserFor: func(name string) string { return g.auth.UserFor(name) },
		While: g.whileRunning, Audit: g.audit, Logger: g.log,
	})
	g.exchange = exchange.New(exchange.Options{
		Ctx: g.ctx, Store: g.store, Peers: g.peers, Paths: g.paths, Stack: g.plane.Stack, Tunnel: g.plane.Engine, Egress: g.egress,
		Shown: g.paths.Shown, Reached: g.paths.Remote, Followed: func() { g.services.Relocate() }, Changed: g.announceChange, Reported: g.judge, Logger: g.log,
	})
	g.services = outbound.New(outbound.Options{
		Store: g.store, Peers: g.peers, Exchange: g.exchange, Flows: g.flows, Dial: g.plane.Stack.DialTCP, Admit: g.opts.AdmitLocal, Known: g.opts.KnownLocal,
		Host: g.opts.LocalHost, Audit: g.audit, Logger: g.log,
	})
	var onServices func(peer.PublicKey, []byte) (string, error)
	if g.plain() || g.opts.Clusterset != nil {
		o := clusterset.Options{
			Ctx: g.ctx, Store: g.store, Peers: g.peers, Exchange: g.exchange, Flows: g.flows, Stack: g.plane.Stack,
			Connected: func(m *roster.Member) bool { return g.paths.Connected(m, time.Now()) },
			Lost: func(l forward.LocalState) (catalogue.Code, catalogue.Params, bool) {
				p, lost := g.lost(l, time.Now())
				return p.Code, p.Params, lost
			},
			Host: g.opts.LocalHost, OwnAddrs: g.opts.OwnAddrs, Plain: g.plain(), Audit: g.audit, Logger: g.log,
		}
		if c := g.opts.Clusterset; c != nil {
			o.Admit = c.Admit
		}
		g.clusters = clusterset.New(o)
		onServices = g.clusters.Receive
	}
	g.auth, err = issuer.Open(issuer.Options{
		Key: g.key, Store: g.store, Peers: g.peers, Listener: inBand, NewClusterIssuer: g.opts.NewClusterIssuer, SetProblems: g.SetProblems,
		Server: auth.ServerOptions{
			Name: cfg.Name, Software: "postern " + g.opts.Version, Redeemer: g.enrolment, OnRotation: g.enrolment.OnRotation,
			OnPath: g.paths.Receive, HeardBoot: g.paths.HeardBoot, OnReport: g.exchange.Receive, Report: g.exchange.ForHello,
			OnServices: onServices,
		},
		Audit: g.audit, Logger: g.log,
	})
	return err
}

// userOf returns the user name of a peer at this cluster's API server.
func (g *Gateway) userOf(name string) string { return g.auth.UserOf(name) }

// subscribe makes the parts follow the roster. The order matters. History comes first, to see
// everything that happens to a peer. The issuer comes before the parts that act, so that a removed
// peer gets no identity. Then come the parts that find, forward to and check peers. Verdicts on a
// removed peer do not carry over to another one of the same name.
func (g *Gateway) subscribe() {
	g.peers.Subscribe(g.remember)
	g.peers.Subscribe(g.auth.Follow)
	g.peers.Subscribe(func(_, next *roster.Roster) { g.paths.SetPeers(next, g.found.Places(next)) })
	g.peers.Subscribe(g.paths.Forget) // after the search for removed peers has stopped
	g.peers.Subscribe(g.services.Follow)
	if g.clusters != nil {
		g.peers.Subscribe(g.clusters.Follow)
	}
	g.peers.Subscribe(g.checkPeers)
	g.peers.Subscribe(g.exchange.Follow)
	g.peers.Subscribe(func(_, _ *roster.Roster) { g.announceChange() })
}

// checkPeers starts and stops checks as peers come and go, and forgets which of their faults did when
// their configuration changes.
func (g *Gateway) checkPeers(old, next *roster.Roster) {
	if gone := old.Without(next); len(gone) > 0 {
		g.checks.SetPeers(slices.DeleteFunc(next.Names(), func(name string) bool {
			return slices.ContainsFunc(gone, func(m *roster.Member) bool { return m.Name == name })
		}))
	}
	g.checks.SetPeers(next.Names())
	for _, m := range next.Members() {
		if was := old.ByName(m.Name); was != nil && m.Reconfigured(was) {
			g.checks.ForgetPeer(m.Name)
		}
	}
}

// heardHello passes on what a peer says about itself.
func (g *Gateway) heardHello(peer string, h auth.Hello) {
	g.exchange.HeardHello(peer, h)
	if g.clusters != nil {
		g.clusters.HeardHello(peer, h)
	}
}

// verdictChanged passes a changed verdict on to the peer that it is about and to the subscribers.
func (g *Gateway) verdictChanged(name string) {
	g.judge(name)
	g.exchange.VerdictChanged(name)
	g.announceChange()
}

// dialOverlay connects to an address inside the tunnel.
func (g *Gateway) dialOverlay(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	c, err := g.plane.Stack.DialTCP(ctx, to)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (g *Gateway) openPlane(cfg *config.Resolved, mtu int) error {
	var err error
	g.plane, err = plane.Open(plane.Options{
		Key: g.key, Port: cfg.ListenPort, MTU: mtu, NewUnderlay: g.opts.NewUnderlay,
		OnSTUN:  g.paths.HandleSTUN,
		OnEvent: g.paths.Heard,
		OnTCP:   func(in *netstack.Incoming) { g.peers.Inbound().Handle(forward.Wrap(in)) },
		OnUDP: func(remote, local netip.AddrPort, payload []byte) bool {
			return g.peers.Inbound().Datagram(remote, local, payload)
		},
		OnUDPRefused: g.flows.PeerRefused,
		OnTransit:    g.transit.Report,
		Owner:        func(remote netip.Addr) netip.Addr { return g.peers.Load().Owner(remote) },
		Logger:       g.log,
	})
	if err == nil {
		g.flows.Attach(g.plane.Stack, peer.OverlayAddr(g.publicKey))
	}
	if errors.Is(err, tunnel.ErrPortInUse) {
		return cfg.Blame("spec.listen.port", err)
	}
	return err
}

// Close drains and closes the gateway. It accepts no new connections; open ones may finish until
// ctx ends, and are then reset. When Close returns, everything is closed. Only the first call does
// the work; the others wait for it.
func (g *Gateway) Close(ctx context.Context) error {
	var err error
	g.closing.Do(func() {
		g.stopping.Store(true)
		g.log.Info("gateway is stopping", "openConnections", total(g.flows.Count()))
		err = g.close(ctx)
		g.tail.End(ctx, time.Now())
		g.log.Info("gateway stopped")
	})
	return err
}

// close closes what open created, in reverse order, as far as open got.
func (g *Gateway) close(ctx context.Context) error {
	if g.store != nil && ctx.Err() != nil {
		g.store.Interrupt() // closing must not wait for a slow backend
	}
	if g.peers != nil {
		g.peers.Close()
	}

	var errs []error
	if g.services != nil {
		g.services.Close()
	}
	if g.clusters != nil {
		g.clusters.Close()
	}
	if g.flows != nil {
		if err := g.flows.Drain(ctx); err != nil {
			g.log.Info("reset connections that did not drain in time", "reason", err)
			time.Sleep(roster.ResetFlushDelay)
		}
	}
	g.cancel()
	if g.enrolment != nil {
		g.enrolment.Close()
	}
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
	if g.clusters != nil {
		g.clusters.Wait()
	}
	if g.metrics != nil {
		g.shutMetrics(g.metrics)
	}
	if g.services != nil {
		g.services.KeepLast()
	}
	if g.plane != nil {
		errs = append(errs, g.plane.Close())
	}
	if g.store != nil {
		errs = append(errs, g.store.Close())
	}
	return errors.Join(errs...)
}

// whileRunning returns a ctx that also ends with the gateway, so that no command outlives it.
func (g *Gateway) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() { cancel(roster.ErrStopping) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

// expired returns a context that has already ended, for closing without waiting.
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
