package turnserver

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/pion/stun/v2"
)

// generator opens the sockets of allocations.
type generator struct {
	listen func(port int) (net.PacketConn, error)
	addr   netip.Addr
	open   sync.WaitGroup // open sockets
}

// Validate is called at the start.
func (g *generator) Validate() error {
	if g.listen == nil || !g.addr.IsValid() {
		return fmt.Errorf("turnserver: ListenRelay and RelayAddr are required")
	}
	return nil
}

// AllocatePacketConn opens the socket of an allocation.
func (g *generator) AllocatePacketConn(_ string, port int) (net.PacketConn, net.Addr, error) {
	conn, err := g.listen(port)
	if err != nil {
		return nil, nil, err
	}
	bound, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		conn.Close()
		return nil, nil, fmt.Errorf("turnserver: a relay socket at %v", conn.LocalAddr())
	}
	g.open.Add(1)
	counted := &relaySocket{PacketConn: conn, closed: sync.OnceFunc(g.open.Done)}
	return counted, net.UDPAddrFromAddrPort(netip.AddrPortFrom(g.addr, uint16(bound.Port))), nil
}

// AllocateConn would relay TCP (RFC 6062), which is not supported.
func (g *generator) AllocateConn(string, int) (net.Conn, net.Addr, error) {
	return nil, nil, fmt.Errorf("turnserver: relays UDP alone")
}

// relaySocket calls closed when it is closed.
type relaySocket struct {
	net.PacketConn
	closed func()
}

// Close closes the socket.
func (r *relaySocket) Close() error {
	defer r.closed()
	return r.PacketConn.Close()
}

// watchedPackets reports the server's last read, which returns an error.
type watchedPackets struct {
	net.PacketConn
	ipv6  bool // the server relays only IPv6
	once  sync.Once
	ended chan struct{}
}

// ReadFrom reads a datagram. Requests for an IPv4 address are refused here, since the library's
// server does not look at the family.
func (w *watchedPackets) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := w.PacketConn.ReadFrom(b)
		if err != nil {
			w.once.Do(func() { close(w.ended) })
			return n, from, err
		}
		refusal := refuseIPv4(b[:n])
		if !w.ipv6 || refusal == nil {
			return n, from, nil
		}
		if _, err := w.WriteTo(refusal, from); err != nil {
			return 0, from, err
		}
	}
}

// refuseIPv4 answers a request for an IPv4 address; nil = it is none, or has no credentials yet.
func refuseIPv4(packet []byte) []byte {
	m := &stun.Message{Raw: bytes.Clone(packet)}
	if m.Decode() != nil || m.Type != stun.NewType(stun.MethodAllocate, stun.ClassRequest) ||
		!m.Contains(stun.AttrUsername) || m.Contains(stun.AttrRequestedAddressFamily) {
		return nil
	}
	answer, err := stun.Build(stun.NewTransactionIDSetter(m.TransactionID),
		stun.NewType(stun.MethodAllocate, stun.ClassErrorResponse), stun.CodeAddrFamilyNotSupported)
	if err != nil {
		return nil
	}
	return answer.Raw
}

// trackedListener keeps track of its accepted connections.
type trackedListener struct {
	net.Listener
	reading sync.WaitGroup // connections that the server reads from

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// Accept accepts and tracks a connection.
func (l *trackedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	l.open[conn] = struct{}{}
	l.reading.Add(1)
	return &trackedConn{Conn: conn, l: l, ended: sync.OnceFunc(l.reading.Done)}, nil
}

// closeAll closes all accepted connections, accepts no more, and waits until none is read.
func (l *trackedListener) closeAll() {
	l.mu.Lock()
	l.closed = true
	for c := range l.open {
		c.Close()
	}
	l.mu.Unlock()
	l.reading.Wait()
}

// trackedConn removes itself from its listener when it is closed, and reports the last read.
type trackedConn struct {
	net.Conn
	l     *trackedListener
	ended func()
}

// Read reads; the server does not call it after an error.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.ended()
	}
	return n, err
}

// Close closes the connection. The server calls it after reading something other than TURN.
func (c *trackedConn) Close() error {
	defer c.ended()
	c.l.mu.Lock()
	delete(c.l.open, c.Conn)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
