package simnet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var errClosed = net.ErrClosed

// DefaultTTL is the TTL of datagrams sent without one.
const DefaultTTL = 64

// Conn is a UDP socket of a simulated host. It has the methods of net.PacketConn and the methods
// of *net.UDPConn for netip addresses. It is safe for concurrent use. Errors after Close satisfy
// errors.Is(err, net.ErrClosed), those of a deadline errors.Is(err, os.ErrDeadlineExceeded).
type Conn struct {
	host  *Host
	bound netip.AddrPort // invalid address means all
	icmp  chan ICMP

	overflows atomic.Uint64

	mu       sync.Mutex
	readable sync.Cond
	queue    []*packet // a ring
	first, n int
	bytes    int // payload in the queue
	closed   bool
	deadline time.Time
	timer    *time.Timer // wakes readers at the deadline
}

func newConn(h *Host, bound netip.AddrPort) *Conn {
	c := &Conn{host: h, bound: bound, icmp: make(chan ICMP, 16), queue: make([]*packet, 64)}
	c.readable.L = &c.mu
	return c
}

// LocalAddr returns the bound address, a *net.UDPAddr: [::] if bound to all.
func (c *Conn) LocalAddr() net.Addr {
	addr := c.bound.Addr()
	if !addr.IsValid() {
		addr = netip.IPv6Unspecified()
	}
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, c.bound.Port()))
}

// ICMP returns a channel of ICMP errors for the socket's datagrams. It buffers 16; further ones
// are dropped. It is never closed.
func (c *Conn) ICMP() <-chan ICMP { return c.icmp }

func (c *Conn) tell(e ICMP) {
	select {
	case c.icmp <- e:
	default:
	}
}

// Overflows returns the number of datagrams dropped because the receive buffer was full.
func (c *Conn) Overflows() uint64 { return c.overflows.Load() }

// WriteToUDPAddrPort sends a datagram. It never blocks. Loss in the network is no error.
func (c *Conn) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	return c.WriteWith(b, to, DefaultTTL, false)
}

// WriteToTTL sends a datagram with a TTL. Each NAT on the path and the public internet decrement
// it by one, links by the Hops of their Conditions.
func (c *Conn) WriteToTTL(b []byte, to netip.AddrPort, ttl uint8) (int, error) {
	return c.WriteWith(b, to, int(ttl), false)
}

// WriteWithTTL is WriteToTTL with the TTL as an int; 0 means the default.
func (c *Conn) WriteWithTTL(b []byte, to netip.AddrPort, ttl int) (int, error) {
	return c.WriteWith(b, to, ttl, false)
}

// WriteWith sends a datagram with a TTL (1 to 255; 0 means the default) and optionally the
// don't-fragment bit: then no link fragments it, and the result is ErrTooLarge if it exceeds the
// MTU of the host's own link.
func (c *Conn) WriteWith(b []byte, to netip.AddrPort, ttl int, dontFragment bool) (int, error) {
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if ttl < 0 || ttl > 255 {
		return 0, fmt.Errorf("write to %v: a TTL of %d: %w", to, ttl, syscall.EINVAL)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	in := c.host.in
	p := in.newPacket()
	p.payload = append(p.payload[:0], b...)
	p.dst, p.sentTo, p.ttl, p.origin = to, to, uint8(ttl), c
	p.dontFragment, p.cutTo = dontFragment, 0
	if err := c.send(p); err != nil {
		in.release(p)
		return 0, fmt.Errorf("write to %v: %w", to, err)
	}
	return len(b), nil
}

func (c *Conn) send(p *packet) error {
	h, in := c.host, c.host.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed || h.conns[c.bound] != c {
		return errClosed
	}
	dst := p.dst.Addr()
	if !dst.IsValid() || dst.IsUnspecified() || dst.IsMulticast() || p.dst.Port() == 0 {
		return ErrUnreachable
	}
	i, src := h.routeLocked(dst, c.bound.Addr())
	if i == nil {
		return ErrUnreachable
	}
	if up := i.link.up; !up.SilentMTU && p.ipSize() > up.MTU && (p.dontFragment || !up.Fragment) {
		return ErrTooLarge
	}
	now := time.Now()
	in.lastID++
	p.id = in.lastID
	p.src = netip.AddrPortFrom(src, c.bound.Port())
	in.trace.add(now, Sent, h.name, p, "")
	if h.ownsLocked(dst) {
		h.receive(now, p)
		return nil
	}
	i.link.up.transmit(now, p)
	return nil
}

// enqueue appends a packet to the queue; false if the buffer is full or closed.
func (c *Conn) enqueue(p *packet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.n > 0 && c.bytes+len(p.payload) > c.host.receiveBuffer || c.n >= maxQueued {
		c.overflows.Add(1)
		return false
	}
	if c.n == len(c.queue) {
		c.grow()
	}
	c.queue[(c.first+c.n)%len(c.queue)] = p
	c.n++
	c.bytes += len(p.payload)
	c.readable.Signal()
	return true
}

// maxQueued bounds the datagrams in a socket, because empty ones need memory, too.
const maxQueued = 1 << 16

func (c *Conn) grow() {
	bigger := make([]*packet, 2*len(c.queue))
	for i := range c.n {
		bigger[i] = c.queue[(c.first+i)%len(c.queue)]
	}
	c.queue, c.first = bigger, 0
}

// ReadFromUDPAddrPort waits for a datagram. It truncates datagrams that do not fit b, as a kernel
// does.
func (c *Conn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	p, err := c.dequeue()
	if err != nil {
		return 0, netip.AddrPort{}, fmt.Errorf("read from port %d of %s: %w", c.bound.Port(), c.host.name, err)
	}
	n, from := copy(b, p.payload), p.src
	c.host.in.release(p)
	return n, from, nil
}

func (c *Conn) dequeue() (*packet, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return nil, errClosed
		case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
			return nil, os.ErrDeadlineExceeded
		case c.n > 0:
			p := c.queue[c.first]
			c.queue[c.first] = nil
			c.first = (c.first + 1) % len(c.queue)
			c.n--
			c.bytes -= len(p.payload)
			return p, nil
		}
		c.readable.Wait()
	}
}

// Close closes the socket and wakes its readers.
func (c *Conn) Close() error {
	in := c.host.in
	in.mu.Lock()
	if c.host.conns[c.bound] == c {
		delete(c.host.conns, c.bound)
	}
	in.mu.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("close port %d of %s: %w", c.bound.Port(), c.host.name, errClosed)
	}
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	for ; c.n > 0; c.n-- {
		in.release(c.queue[c.first])
		c.first = (c.first + 1) % len(c.queue)
	}
	c.queue, c.bytes = nil, 0
	c.readable.Broadcast()
	return nil
}

// SetReadDeadline makes reads fail after t; zero means never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("set deadline: %w", errClosed)
	}
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.deadline = t
	if !t.IsZero() {
		c.timer = time.AfterFunc(time.Until(t), c.wake)
	}
	c.readable.Broadcast()
	return nil
}

func (c *Conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readable.Broadcast()
}

// SetWriteDeadline does nothing: writes never block.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline is SetReadDeadline.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// ReadFrom is ReadFromUDPAddrPort for net.PacketConn.
func (c *Conn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		return 0, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// WriteTo is WriteToUDPAddrPort for net.PacketConn.
func (c *Conn) WriteTo(b []byte, to net.Addr) (int, error) {
	u, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, fmt.Errorf("write to %v: %w", to, ErrUnreachable)
	}
	return c.WriteToUDPAddrPort(b, u.AddrPort())
}
