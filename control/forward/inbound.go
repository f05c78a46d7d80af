package forward

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
)

// InboundOptions are what Inbound needs of the gateway.
type InboundOptions struct {
	// Resolve returns the owner of a source address inside the tunnel. It is called for each
	// connection, so that a removal takes effect at once. For someone who may not connect yet, or
	// never may, it can still return the name for the log.
	Resolve func(netip.Addr) (Peer, bool)
	// Allowed is the policy: may the peer reach the service? It is not called for auth, which is
	// open to every peer and decides for itself.
	Allowed func(p Peer, service string) bool
	// Dial dials an upstream; nil takes DialUpstream.
	Dial func(ctx context.Context, address string) (Conn, error)
	// Logger gets warnings with their codes; nil discards.
	Logger *slog.Logger
	// Audit gets a record of each connection to an upstream, when it begins and when it ends, and
	// of refusals of what was not granted. The audit log limits their number. Connections to auth
	// are recorded by auth, which knows their purpose. Nil discards.
	Audit *audit.Log
}

// How long a peer's connection may stay half open: its handshake is completed only when the upstream
// is connected.
const (
	// upstreamTimeout bounds dialling the upstream, name resolution included. The peer's kernel
	// repeats its SYN after 1, 3 and 7 s, so it learns the outcome early.
	upstreamTimeout = 5 * time.Second
	// backendTimeout bounds dialling a backend while there may be another.
	backendTimeout = 2 * time.Second
	// handshakeTimeout bounds completing the peer's handshake once the upstream is connected.
	handshakeTimeout = 5 * time.Second
)

// Inbound forwards connections of peers to the services of this gateway.
type Inbound struct {
	flows *Flows
	opts  InboundOptions
	count *counters // of connections
	udp   *counters // of flows of datagrams

	configure sync.Mutex // serialises SetServices
	services  atomic.Pointer[offered]

	mu       sync.RWMutex
	clusters *offered // services of this cluster, which give way to those that are configured
}

// NewInbound returns an Inbound without services.
func NewInbound(flows *Flows, o InboundOptions) *Inbound {
	if o.Dial == nil {
		o.Dial = DialUpstream
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	in := &Inbound{flows: flows, opts: o, count: newCounters(), udp: newCounters(), clusters: newOffered()}
	in.services.Store(newOffered())
	return in
}

// SetServices replaces the services. Open connections to a removed service are reset; those to one
// whose upstream changed stay with the old one until they end.
func (in *Inbound) SetServices(services []Service) error {
	now, err := offer(services)
	if err != nil {
		return err
	}
	in.configure.Lock()
	defer in.configure.Unlock()
	in.services.Store(now)
	in.flows.endMatching(func(a about) bool { return a.direction == DirectionInbound && !in.has(a.service) })
	return nil
}

// SetClusterServices changes the services of this cluster by difference: it removes those with the
// names in gone, and then adds now. Open connections to a removed service, or to one that has other
// ports now, are reset. The error is about services that therefore are not offered; the others are.
func (in *Inbound) SetClusterServices(gone []string, now []Service) error {
	moved := map[string]bool{}
	var errs []error
	in.mu.Lock()
	for _, name := range gone {
		moved[name] = true
		in.clusters.remove(name)
	}
	for _, s := range now {
		if was := in.clusters.names[s.Name]; was != nil {
			if was.Ports != s.Ports {
				moved[s.Name] = true
			}
			in.clusters.remove(s.Name)
		}
	}
	for _, s := range now {
		errs = append(errs, in.clusters.add(s))
	}
	in.mu.Unlock()
	if len(moved) > 0 {
		in.flows.endMatching(func(a about) bool { return a.direction == DirectionInbound && moved[a.service] })
	}
	return errors.Join(errs...)
}

// EndFlows ends the flows of datagrams to removed backends of services of this cluster. Connections end
// with the backend.
func (in *Inbound) EndFlows(gone func(service string, to netip.AddrPort) bool) {
	in.flows.udp.endMatching(func(a about) bool {
		if a.direction != DirectionInbound {
			return false
		}
		to, err := netip.ParseAddrPort(a.upstream)
		return err == nil && gone(a.service, to)
	})
}

// at returns the service of a port.
func (in *Inbound) at(protocol api.Protocol, port uint16) (Service, bool) {
	k := portOf{protocol == api.UDP, port}
	s := in.services.Load().ports[k]
	if s == nil {
		in.mu.RLock()
		defer in.mu.RUnlock()
		s = in.clusters.ports[k]
	}
	if s == nil {
		return Service{}, false
	}
	return *s, true
}

// has reports whether there is a service with that name.
func (in *Inbound) has(name string) bool {
	if in.services.Load().names[name] != nil {
		return true
	}
	in.mu.RLock()
	defer in.mu.RUnlock()
	return in.clusters.names[name] != nil
}

// Reauthorize resets the open connections that the policy no longer allows, and returns their
// number. It must be called after grants or peers have changed.
func (in *Inbound) Reauthorize() int {
	return in.flows.endMatching(func(a about) bool { return a.direction == DirectionInbound && !in.stillAllowed(a) })
}

func (in *Inbound) stillAllowed(a about) bool {
	from, err := netip.ParseAddrPort(a.remote)
	if err != nil {
		return false
	}
	p, ok := in.opts.Resolve(from.Addr())
	return ok && p.Name == a.peer && in.has(a.service) && in.allowed(p, a.service)
}

// Counters returns the counters of connections since the start, UDPCounters those of flows of
// datagrams.
func (in *Inbound) Counters() Counters    { return in.count.snapshot() }
func (in *Inbound) UDPCounters() Counters { return in.udp.snapshot() }

// Handle answers one connection and forwards it until it ends. It is called on its own goroutine.
func (in *Inbound) Handle(c Incoming) {
	p, s, reason := in.authorize(api.TCP, c.Remote(), c.Local())
	if reason != "" {
		in.refuse(c, p, s, reason, nil)
		return
	}
	f, reason := in.flows.begin(DirectionInbound, p.Name, s.Name, c.Remote().String())
	if reason != "" {
		in.refuse(c, p, s, reason, nil)
		return
	}
	defer in.flows.end(f)
	// A removal or withdrawal between the look-up and the entry in the table would have
	// missed it.
	if !in.stillAllowed(f.about()) {
		in.refuse(c, p, s, NotGranted, nil)
		return
	}
	if s.Handler != nil {
		in.serve(c, f, p, s)
		return
	}
	in.carry(c, f, p, s)
}

// authorize returns the peer and service of a connection, or of a datagram that begins a flow.
func (in *Inbound) authorize(protocol api.Protocol, remote, local netip.AddrPort) (Peer, Service, Reason) {
	p, known := in.opts.Resolve(remote.Addr())
	s, ok := in.at(protocol, local.Port())
	k := shareOf(DirectionInbound, p.Name, s.Name)
	k.udp = protocol == api.UDP
	if !in.flows.arrives(k, time.Now()) {
		return p, Service{}, PeerRateLimit
	}
	if !known {
		return p, Service{}, UnknownPeer
	}
	if !ok {
		return p, s, NoService
	}
	if !in.allowed(p, s.Name) {
		return p, s, NotGranted
	}
	return p, s, ""
}

// allowed applies the policy, and the rules that it cannot change.
func (in *Inbound) allowed(p Peer, service string) bool {
	if service == api.ServiceAuth {
		return !p.Mute
	}
	return !p.OneTime && in.opts.Allowed(p, service)
}

// carry dials the upstream, then completes the handshake, then copies.
func (in *Inbound) carry(c Incoming, f *flow, p Peer, s Service) {
	up, err := in.dial(f, c, p, s)
	if err != nil {
		reason := UpstreamDown
		switch {
		case f.ctx.Err() != nil:
			reason = Stopping // removed, revoked or stopping: not the upstream's fault
		case errors.Is(err, errNoneReady):
			reason = NoneReady
		}
		in.refuse(c, p, s, reason, err)
		return
	}
	if !f.attach(up) {
		in.refuse(c, p, s, Stopping, nil)
		return
	}
	down, ok := in.accept(c, f, p, s)
	if !ok {
		abort(up)
		return
	}
	in.opts.Audit.Record(f.ctx, audit.Connect, audit.Peer(p.Name), slog.String(audit.KeyService, s.Name),
		slog.String(audit.KeyAddress, f.remote))
	f.splice(down, up)
	in.opts.Audit.Record(context.WithoutCancel(f.ctx), audit.Disconnect, audit.Peer(p.Name),
		slog.String(audit.KeyService, s.Name), slog.String(audit.KeyAddress, f.remote),
		slog.Uint64("rxBytes", f.rx.Load()), slog.Uint64("txBytes", f.tx.Load()),
		slog.Float64("seconds", time.Since(f.startedAt).Seconds()))
}

// errNoneReady: no backend of the service is ready.
var errNoneReady = errors.New("no backend is ready")

// dial connects to the upstream, or to one of the backends: another one if one fails, or is no
// longer ready before it is connected.
func (in *Inbound) dial(f *flow, from Incoming, p Peer, s Service) (Conn, error) {
	ctx, cancel := context.WithTimeout(f.ctx, upstreamTimeout)
	defer cancel()
	port, header := from.Local().Port(), []byte(nil)
	if s.ProxyProtocol == api.ProxyV2 {
		header = proxyHeader(from.Remote(), from.Local(), p.Name)
	}
	if s.Backends == nil {
		return in.connect(ctx, s.upstream(port), header)
	}
	err := errNoneReady
	for tried := []netip.AddrPort(nil); ; {
		to := s.Backends.Pick(p.Name, int(port-s.Ports.First), tried)
		if !to.IsValid() || ctx.Err() != nil {
			return nil, err
		}
		tried = append(tried, to.AddrPort)
		var c Conn
		if c, err = in.dialBackend(ctx, f, to, header); errors.Is(err, errLoop) { // by chance, but not twice
			c, err = in.dialBackend(ctx, f, to, header)
		}
		if err == nil {
			return c, nil
		}
	}
}

func (in *Inbound) dialBackend(ctx context.Context, f *flow, to Backend, header []byte) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, backendTimeout)
	defer cancel()
	defer context.AfterFunc(to.Ready, cancel)()
	c, err := in.connect(ctx, to.String(), header)
	switch {
	case err != nil && to.Ready.Err() == nil:
		return nil, err
	case err != nil:
		return nil, errNoneReady
	case to.Ready.Err() != nil:
		err = errNoneReady
	case f.is(c.LocalAddr()):
		err = &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to.AddrPort), Err: errLoop}
	default:
		return c, nil
	}
	abort(c)
	return nil, err
}

// connect dials, and sends the header. That fits the socket's buffer, so sending does not block.
func (in *Inbound) connect(ctx context.Context, address string, header []byte) (Conn, error) {
	c, err := in.opts.Dial(ctx, address)
	if err != nil || header == nil {
		return c, err
	}
	if _, err := c.Write(header); err != nil {
		abort(c)
		return nil, err
	}
	return c, nil
}

// serve completes the handshake and passes the connection to the service's handler.
func (in *Inbound) serve(c Incoming, f *flow, p Peer, s Service) {
	down, ok := in.accept(c, f, p, s)
	if !ok {
		return
	}
	s.Handler.ServeConn(f.ctx, &countedConn{Conn: down, f: f})
	f.finish(down)
}

// accept completes the handshake of an admitted flow.
func (in *Inbound) accept(c Incoming, f *flow, p Peer, s Service) (Conn, bool) {
	ctx, cancel := context.WithTimeout(f.ctx, handshakeTimeout)
	defer cancel()
	down, err := c.Accept(ctx)
	if err != nil {
		in.flows.refuse(in.count, DirectionInbound, p.Name, s.Name, HandshakeFailed)
		in.opts.Logger.Debug("handshake inside the tunnel failed",
			"peer", p.Name, "service", s.Name, "remote", c.Remote().String(), "error", err)
		return nil, false
	}
	if !f.attach(down) {
		in.flows.refuse(in.count, DirectionInbound, p.Name, s.Name, Stopping)
		return nil, false
	}
	in.flows.established(f)
	in.count.accepted.Add(1)
	return down, true
}

// countedConn counts the bytes of a connection that is served in this process.
type countedConn struct {
	Conn
	f *flow
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.f.rx.Add(uint64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.f.tx.Add(uint64(n))
	return n, err
}

// Abort resets the connection.
func (c *countedConn) Abort() { abort(c.Conn) }
