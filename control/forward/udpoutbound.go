package forward

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/postern-dev/postern/control/api"
)

// udpEar is a local socket whose datagrams go to one port of a peer's service.
type udpEar struct {
	local *local
	nth   int
	sock  *socket // since listen

	mu      sync.Mutex
	clients map[netip.AddrPort]*udpClient // nil once it is closed
}

// udpClient is a client that sends to an ear.
type udpClient struct {
	ear  *udpEar
	from netip.AddrPort
	flow *udpFlow
}

// local is the listener that the client uses.
func (c *udpClient) local() *local { return c.ear.local }

// listenUDP opens an ear.
func (l *local) listenUDP(nth int, at netip.AddrPort) (*udpEar, netip.AddrPort, error) {
	e := &udpEar{local: l, nth: nth, clients: make(map[netip.AddrPort]*udpClient)}
	e.mu.Lock() // until there is a socket to answer through
	defer e.mu.Unlock()
	var err error
	if e.sock, err = l.out.flows.udp.sockets.listen(at, e); err != nil {
		return nil, netip.AddrPort{}, err
	}
	return e, e.sock.local(), nil
}

// Close closes the ear and ends its flows.
func (e *udpEar) Close() error {
	e.sock.close()
	e.mu.Lock()
	clients := e.clients
	e.clients = nil
	e.mu.Unlock()
	for _, c := range clients {
		c.flow.end()
	}
	return nil
}

// datagram implements receiver.
func (e *udpEar) datagram(from netip.AddrPort, b []byte) {
	o := e.local.out
	c, reason, why := e.client(from)
	switch {
	case reason == "":
		c.flow.datagram(from, b)
	case why != nil:
		o.notAdmitted(e.local.want, o.udp, from.String(), why)
	default:
		o.refusedUDP(e.local.want, reason, from)
	}
}

// refusedUDP counts a datagram that was dropped, and logs the reason if an operator should know it.
func (o *Outbound) refusedUDP(w Local, reason Reason, from netip.AddrPort) {
	o.flows.refuse(o.udp, DirectionOutbound, w.Peer, w.Service, reason)
	if reason != Stopping {
		o.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "too many flows of datagrams, local datagram dropped",
			limited(w, reason, from.String(), o.flows.udp.bounds)...)
	}
}

// client returns the client with an address; a new client begins a flow. If that is refused, why says
// why the client is not admitted, if that is the reason.
func (e *udpEar) client(from netip.AddrPort) (_ *udpClient, _ Reason, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.clients[from]; c != nil {
		return c, "", nil
	}
	if e.clients == nil {
		return nil, Stopping, nil
	}
	o, w := e.local.out, e.local.want
	c := &udpClient{ear: e, from: from}
	c.flow = &udpFlow{outside: end{false, true, unmapped(from)}, service: w.Service, side: c, tally: o.flows.uses.tally(DirectionOutbound, w.Peer, w.Service)}
	if o.flows.loops.add(c.flow.outside) {
		o.flows.loops.remove(c.flow.outside)
		return nil, NotAdmitted, errLoop
	}
	reason, waits := o.place(w, from.String(), func(waits bool) Reason {
		k := shareOfUDP(DirectionOutbound, w.Peer)
		if waits {
			k = unadmittedShare(w.Peer, from.Addr())
			k.udp = true
		}
		return o.flows.udp.begin(c.flow, k, c.open)
	})
	if reason == "" {
		e.clients[from] = c
		return c, "", nil
	}
	o.flows.loops.remove(c.flow.outside)
	if waits {
		why = errManyWait
	}
	return nil, reason, why
}

// refused implements receiver.
func (e *udpEar) refused(to netip.AddrPort) {
	e.mu.Lock()
	c := e.clients[to]
	e.mu.Unlock()
	if c != nil {
		c.flow.refused(to)
	}
}

// open finds the flow's destination.
func (c *udpClient) open() {
	l := c.local()
	o, w, t := l.out, l.want, l.out.flows.udp
	if o.opts.Admit != nil {
		if err := o.admits(w, api.UDP, c.from.String()); err != nil {
			c.flow.end()
			o.notAdmitted(w, o.udp, c.from.String(), err)
			return
		}
		if reason := t.admitted(c.flow); reason != "" {
			c.flow.end()
			o.refusedUDP(w, reason, c.from)
			return
		}
	}
	ctx, cancel := context.WithTimeout(t.ctx, o.opts.DialTimeout)
	defer cancel()
	to, err := o.opts.Find(ctx, w.target(c.ear.nth, c.from.String()))
	if err == nil {
		err = t.place(c.flow, to)
	}
	if err != nil {
		if !c.flow.end() {
			return
		}
		c.lost(err)
		o.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "peer's service cannot be reached, local datagrams dropped", peerDown(w, err)...)
		return
	}
	if t.opened(c.flow, c) {
		o.udp.accepted.Add(1)
		l.unrefused(c.flow)
	}
}

// lost records that the datagrams could not be carried to the peer's service.
func (c *udpClient) lost(err error) {
	l := c.local()
	l.out.flows.refuse(l.out.udp, DirectionOutbound, l.want.Peer, l.want.Service, PeerDown)
	l.carried(err)
}

// send implements udpSide.
func (c *udpClient) send(b []byte) error { return c.ear.sock.sendTo(b, c.from) }

// close implements udpSide: a client that sends again begins a new flow.
func (c *udpClient) close() {
	c.ear.mu.Lock()
	defer c.ear.mu.Unlock()
	if c.ear.clients[c.from] == c {
		c.ear.clients = without(c.ear.clients, c.from)
	}
}
