package faketest

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// packetConn is a UDP socket of the router's client, connected or not.
type packetConn struct {
	r      *Router
	local  netip.AddrPort
	remote netip.AddrPort // invalid if it is not connected

	in     chan packet
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex
	deadline *time.Timer
	expired  chan struct{} // closed when the read deadline has passed
}

// packet is what arrives: data with its source, or the ICMP error for what was sent.
type packet struct {
	b    []byte
	from netip.AddrPort
	err  error
}

// inbox limits what waits to be read; more is lost, as with a real socket.
const inbox = 64

func newPacketConn(r *Router, local, remote netip.AddrPort) *packetConn {
	return &packetConn{
		r: r, local: local, remote: remote,
		in: make(chan packet, inbox), closed: make(chan struct{}), expired: make(chan struct{}),
	}
}

func (c *packetConn) deliver(p packet) {
	select {
	case c.in <- p:
	default:
	}
}

// Write sends to the router's port 5351.
func (c *packetConn) Write(b []byte) (int, error) {
	answers, refused := c.r.askedAt5351(b)
	if refused {
		c.deliver(packet{err: syscall.ECONNREFUSED})
	}
	for _, a := range answers {
		c.deliver(packet{b: a, from: c.remote})
	}
	return len(b), nil
}

// WriteTo sends a search.
func (c *packetConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if a, from := c.r.searched(b, to.String()); a != nil {
		c.deliver(packet{b: a, from: from})
	}
	return len(b), nil
}

func (c *packetConn) next() (packet, error) {
	c.mu.Lock()
	expired := c.expired
	c.mu.Unlock()
	select {
	case p := <-c.in:
		return p, p.err
	case <-c.closed:
		return packet{}, net.ErrClosed
	case <-expired:
		return packet{}, os.ErrDeadlineExceeded
	}
}

func (c *packetConn) Read(b []byte) (int, error) {
	p, err := c.next()
	return copy(b, p.b), err
}

func (c *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	p, err := c.next()
	return copy(b, p.b), net.UDPAddrFromAddrPort(p.from), err
}

// SetReadDeadline applies to later reads, and to the current one if the deadline moves nearer.
func (c *packetConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline != nil {
		c.deadline.Stop()
	}
	expired := c.expired
	c.deadline = time.AfterFunc(time.Until(t), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		select {
		case <-expired:
		default:
			close(expired)
		}
	})
	return nil
}

func (c *packetConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline != nil {
		c.deadline.Stop()
	}
	return nil
}

func (c *packetConn) LocalAddr() net.Addr              { return net.UDPAddrFromAddrPort(c.local) }
func (c *packetConn) RemoteAddr() net.Addr             { return net.UDPAddrFromAddrPort(c.remote) }
func (c *packetConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *packetConn) SetWriteDeadline(time.Time) error { return nil }
