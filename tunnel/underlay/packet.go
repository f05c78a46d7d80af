package underlay

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.zx2c4.com/wireguard/conn"
)

// PacketConn is a datagram socket; *net.UDPConn is one.
type PacketConn interface {
	ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	LocalAddr() net.Addr
	Close() error
}

// ttlWriter is a PacketConn that can limit the number of hops, as simulated networks do.
type ttlWriter interface {
	WriteToTTL(b []byte, to netip.AddrPort, ttl uint8) (int, error)
}

// unreachableReporter is a PacketConn that reports the ICMP errors of a simulated network, with the
// reasons of [Unreachable]. It calls f until Close returns.
type unreachableReporter interface {
	OnUnreachable(f func(to netip.AddrPort, by netip.Addr, reason string))
}

// packetBind is the Bind over a PacketConn: one datagram per call.
type packetBind struct {
	listen  func(port uint16) (PacketConn, error)
	onError func(netip.AddrPort, icmpError) // nil: not reported

	mu   sync.RWMutex
	conn PacketConn // nil while closed
}

var _ network = (*packetBind)(nil)

func (b *packetBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	c, err := b.listen(port)
	if err != nil {
		return nil, 0, err
	}
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		_ = c.Close()
		return nil, 0, fmt.Errorf("local address of the datagram socket: %w", err)
	}
	if t, ok := c.(unreachableReporter); ok && b.onError != nil {
		t.OnUnreachable(func(to netip.AddrPort, by netip.Addr, reason string) {
			b.onError(unmapped(to), icmpError{reason: reason, by: by})
		})
	}
	b.mu.Lock()
	b.conn = c
	b.mu.Unlock()
	return []conn.ReceiveFunc{b.receiver(c)}, local.Port(), nil
}

// onErrors is called before Open.
func (b *packetBind) onErrors(f func(netip.AddrPort, icmpError)) { b.onError = f }

func (b *packetBind) receiver(c PacketConn) conn.ReceiveFunc {
	last := new(packetEndpoint) // endpoints are immutable, so equal ones may be shared
	return func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		n, from, err := c.ReadFromUDPAddrPort(packets[0])
		if err != nil {
			return 0, err
		}
		if from = unmapped(from); last.AddrPort != from {
			last = &packetEndpoint{from}
		}
		sizes[0], eps[0] = n, last
		return 1, nil
	}
}

func (b *packetBind) Close() error {
	b.mu.Lock()
	c := b.conn
	b.conn = nil
	b.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Close()
}

// open returns the socket, nil while closed.
func (b *packetBind) open() PacketConn {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.conn
}

// probeWriter is a PacketConn that can also forbid fragments; a ttl of 0 means the default.
type probeWriter interface {
	WriteWith(b []byte, to netip.AddrPort, ttl int, dontFragment bool) (int, error)
}

func (b *packetBind) probe(p []byte, ep conn.Endpoint, o SendOptions) error {
	if to, ok := ep.(*packetEndpoint); ok && (o.TTL > 0 || o.DontFragment) {
		if c, ok := b.open().(probeWriter); ok {
			_, err := c.WriteWith(p, to.AddrPort, o.TTL, o.DontFragment)
			return err
		}
	}
	if to, ok := ep.(*packetEndpoint); ok && o.TTL > 0 {
		if c, ok := b.open().(ttlWriter); ok {
			_, err := c.WriteToTTL(p, to.AddrPort, uint8(o.TTL))
			return err
		}
	}
	return b.Send([][]byte{p}, ep)
}

func (b *packetBind) Send(bufs [][]byte, ep conn.Endpoint) error {
	to, ok := ep.(*packetEndpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	c := b.open()
	if c == nil {
		return net.ErrClosed
	}
	var first error
	for _, p := range bufs {
		if _, err := c.WriteToUDPAddrPort(p, to.AddrPort); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (b *packetBind) ParseEndpoint(s string) (conn.Endpoint, error) {
	a, err := netip.ParseAddrPort(s)
	return b.endpoint(a), err
}

func (b *packetBind) endpoint(a netip.AddrPort) conn.Endpoint { return &packetEndpoint{a} }

func (b *packetBind) SetMark(uint32) error { return nil }

func (b *packetBind) BatchSize() int { return 1 }

// packetEndpoint is a remote address; the socket chooses the source.
type packetEndpoint struct{ netip.AddrPort }

func (e *packetEndpoint) ClearSrc()           {}
func (e *packetEndpoint) SrcToString() string { return "" }
func (e *packetEndpoint) SrcIP() netip.Addr   { return netip.Addr{} }
func (e *packetEndpoint) DstToString() string { return e.String() }
func (e *packetEndpoint) DstIP() netip.Addr   { return e.Addr() }
func (e *packetEndpoint) DstToBytes() []byte {
	b, _ := e.MarshalBinary() // never fails
	return b
}
