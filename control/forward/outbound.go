package forward

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/catalogue"
)

// Local is a listener on this machine that leads to a service of a peer.
type Local struct {
	Peer    string
	Service string
	// Address is where to listen, as api.ParseListen reads it. Empty chooses a free port of
	// OutboundOptions.Host and keeps it.
	Address string
	// Protocol is the protocol of a listener without an Address; empty is TCP.
	Protocol api.Protocol
	// Port is tried first for an empty Address: it is the port of an earlier run. 0 is any.
	Port uint16
}

// LocalState is the state of a Local.
type LocalState struct {
	Peer    string
	Service string
	// Address is the listener's address, or the one that could not be opened.
	Address string
	// Err says why it is not open; it is retried until it is.
	Err error
	// Lost is why the last connection or flow of datagrams could not be carried to the peer, at
	// LostAt; nil if it could. Datagrams count as carried once one is answered, or none was refused
	// for 5 s.
	Lost   error
	LostAt time.Time
}

// Target is what a local client wants to reach at a peer.
type Target struct {
	Peer, Service string
	// Nth is the port of the service, the first being 0.
	Nth int
	// Client is who connected.
	Client netip.AddrPort
}

// target returns the target of a client at an address.
func (w Local) target(nth int, client string) Target {
	from, _ := netip.ParseAddrPort(client) // of a connection that there is
	return Target{w.Peer, w.Service, nth, netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
}

// OutboundOptions are what Outbound needs of the gateway.
type OutboundOptions struct {
	// Dial connects to a port of a peer's service inside the tunnel. Required.
	Dial func(ctx context.Context, to Target) (Conn, error)
	// Find says where a UDP port of a peer's service is inside the tunnel.
	Find func(ctx context.Context, to Target) (netip.AddrPort, error)
	// DialTimeout bounds Dial and Find; 0 takes 5 s.
	DialTimeout time.Duration
	// Admit returns why a client of a protocol at an address may not use a listener; nil admits
	// everybody. It may take a while, since each connection waits for it separately, and takes no
	// place of the peer's until then.
	Admit func(local Local, by api.Protocol, from netip.AddrPort) error
	// Known reports whether a client was admitted a short time ago. If too many others wait, it takes
	// one of the peer's places before it is admitted: strangers, which may be forged, do not keep it
	// out. Known must not block; nil knows nobody.
	Known func(local Local, from netip.AddrPort) bool
	// Host is where a listener without an Address listens; the zero value is 127.0.0.1.
	Host netip.Addr
	// FirstPort to LastPort is the range for such a listener's port; 0 takes any.
	FirstPort, LastPort uint16
	// Avoid reports whether such a listener takes a port of the range only if no other is free; nil is
	// none.
	Avoid  func(l Local, port uint16) bool
	Logger *slog.Logger
	// Audit may be nil.
	Audit *audit.Log
}

// Outbound carries local connections and datagrams to services of peers.
type Outbound struct {
	flows *Flows
	opts  OutboundOptions
	count *counters // of connections
	udp   *counters // of flows of datagrams

	configure sync.Mutex // serialises SetLocals and Close
	ports     ports

	mu     sync.Mutex
	closed bool
	locals map[localKey]*local
}

type localKey struct{ peer, service string }

// NewOutbound returns an Outbound without listeners.
func NewOutbound(flows *Flows, o OutboundOptions) *Outbound {
	if o.DialTimeout <= 0 {
		o.DialTimeout = upstreamTimeout
	}
	if !o.Host.IsValid() {
		o.Host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if o.Avoid == nil {
		o.Avoid = func(Local, uint16) bool { return false }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Outbound{flows: flows, opts: o, count: newCounters(), udp: newCounters(),
		locals: make(map[localKey]*local), ports: ports{full: make(map[api.Protocol]time.Time)}}
}

// SetLocals replaces the listeners. Unchanged ones are not disturbed. A listener that moves to
// another address keeps its open connections; those of a removed one are reset. One that cannot be
// opened is reported by Locals and tried again.
func (o *Outbound) SetLocals(want []Local) {
	o.configure.Lock()
	defer o.configure.Unlock()

	wanted := make(map[localKey]Local, len(want))
	for _, w := range want {
		wanted[localKey{w.Peer, w.Service}] = w
	}
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return
	}
	var stopped []*local
	for k, l := range o.locals {
		if w, ok := wanted[k]; ok && l.serves(w) {
			delete(wanted, k)
			continue
		}
		stopped = append(stopped, l)
		delete(o.locals, k)
	}
	o.mu.Unlock()

	for _, l := range stopped { // before opening, since a new one may want the old port
		l.close()
	}
	for _, anywhere := range []bool{false, true} { // who may be anywhere lets others have theirs
		for k, w := range wanted {
			if (w.Address == "") != anywhere {
				continue
			}
			l := openLocal(o, w)
			o.mu.Lock()
			o.locals[k] = l
			o.mu.Unlock()
		}
	}
	for _, l := range stopped {
		if _, moved := wanted[l.key()]; !moved {
			o.closeFlows(l.key())
		}
	}
}

// closeFlows resets the connections that a removed listener had accepted.
func (o *Outbound) closeFlows(k localKey) {
	o.flows.endMatching(func(a about) bool {
		return a.direction == DirectionOutbound && a.peer == k.peer && a.service == k.service
	})
}

// Locals lists the listeners, ordered by peer and service.
func (o *Outbound) Locals() []LocalState {
	o.mu.Lock()
	locals := make([]*local, 0, len(o.locals))
	for _, l := range o.locals {
		locals = append(locals, l)
	}
	o.mu.Unlock()
	out := make([]LocalState, 0, len(locals))
	for _, l := range locals {
		out = append(out, l.state())
	}
	slices.SortFunc(out, func(a, b LocalState) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Service, b.Service))
	})
	return out
}

// Counters returns the counters of connections since the start, UDPCounters those of flows of
// datagrams.
func (o *Outbound) Counters() Counters    { return o.count.snapshot() }
func (o *Outbound) UDPCounters() Counters { return o.udp.snapshot() }

// Close ends the listeners and waits for their goroutines. Open connections continue: Flows.Drain
// ends them. Flows of datagrams end with the socket that they share.
func (o *Outbound) Close() {
	o.configure.Lock()
	defer o.configure.Unlock()
	o.mu.Lock()
	o.closed = true
	locals := o.locals
	o.locals = make(map[localKey]*local)
	o.mu.Unlock()
	for _, l := range locals {
		l.close()
	}
}

// admit enters an accepted connection into the table, or resets it.
func (o *Outbound) admit(w Local, c Conn) *flow {
	remote := c.RemoteAddr().String()
	from := w.target(0, remote).Client.Addr()
	var f *flow
	reason, waits := o.place(w, remote, func(waits bool) (r Reason) {
		k, client := shareOf(DirectionOutbound, w.Peer, w.Service), o.client(from)
		if waits {
			k, client = unadmittedShare(w.Peer, from), netip.Addr{}
		}
		f, r = o.flows.enter(k, client, DirectionOutbound, w.Peer, w.Service, remote)
		return r
	})
	switch {
	case reason == "" && f.is(c.RemoteAddr()):
		o.notAdmitted(w, o.count, remote, errLoop)
		o.flows.end(f)
	case reason == "":
		return f
	case waits:
		o.notAdmitted(w, o.count, remote, errManyWait)
	default:
		o.refused(w, reason, remote, nil)
	}
	abort(c)
	return nil
}

// place calls take for a place among those that wait to be admitted, or else among those that are.
// It returns the reason of the last call, and whether the client was refused because too many wait.
func (o *Outbound) place(w Local, remote string, take func(waits bool) Reason) (reason Reason, waits bool) {
	if o.opts.Admit != nil {
		reason = take(true)
		if reason == "" || reason == Stopping {
			return reason, false
		}
		if o.opts.Known == nil || !o.opts.Known(w, w.target(0, remote).Client) {
			return reason, true
		}
	}
	return take(false), false
}

// client returns the address by which a client's flows are counted once it is admitted. Programs of
// this machine are not told apart.
func (o *Outbound) client(from netip.Addr) netip.Addr {
	if o.opts.Admit == nil && from.Unmap().IsLoopback() {
		return netip.Addr{}
	}
	return from.Unmap()
}

// carry dials a port of the peer's service and copies. It ends the flow.
func (o *Outbound) carry(w Local, nth int, f *flow, c Conn) {
	defer o.flows.end(f)
	if !f.attach(c) {
		o.refused(w, Stopping, f.remote, nil)
		return
	}
	if !o.admitted(w, f) {
		f.abort()
		return
	}
	ctx, cancel := context.WithTimeout(f.ctx, o.opts.DialTimeout)
	up, err := o.opts.Dial(ctx, w.target(nth, f.remote))
	cancel()
	if f.ctx.Err() == nil {
		o.carried(w, err)
	}
	if err != nil {
		reason := PeerDown
		if f.ctx.Err() != nil {
			reason = Stopping
		}
		abort(c)
		o.refused(w, reason, f.remote, err)
		return
	}
	if !f.attach(up) {
		o.refused(w, Stopping, f.remote, nil)
		return
	}
	o.flows.established(f)
	o.count.accepted.Add(1)
	f.splice(up, c)
}

// carried stores whether the service of a listener was reached.
func (o *Outbound) carried(w Local, err error) {
	if l := o.local(w); l != nil {
		l.carried(err)
	}
}

// local returns the listener for a service; nil if there is none any more.
func (o *Outbound) local(w Local) *local {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.locals[localKey{w.Peer, w.Service}]
}

// refused counts a connection that was reset, and logs the reason if an operator should know it.
func (o *Outbound) refused(w Local, reason Reason, remote string, err error) {
	o.flows.refuse(o.count, DirectionOutbound, w.Peer, w.Service, reason)
	switch reason {
	case Stopping:
	case PeerDown:
		o.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "peer's service cannot be reached, local connection reset",
			peerDown(w, err)...)
	default:
		o.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "too many connections, local connection reset",
			limited(w, reason, remote, o.flows.limitsNow().tcp(classOf(w.Service)))...)
	}
}

// peerDown returns the attributes of a warning about a peer's service that cannot be reached.
func peerDown(w Local, err error) []slog.Attr {
	return warning(DirectionOutbound, catalogue.PeerServiceDown,
		catalogue.Params{Peer: w.Peer, Service: w.Service, Address: w.Address, Detail: catalogue.Reason(err)})
}

// limited returns the attributes of a warning about a limit.
func limited(w Local, reason Reason, remote string, b bounds) []slog.Attr {
	code, limit := limitCode(reason, b)
	p := catalogue.Params{Peer: w.Peer, Service: w.Service, Address: w.Address, Limit: limit}
	p.From = w.target(0, remote).Client.Addr().String()
	return warning(DirectionOutbound, code, p)
}
