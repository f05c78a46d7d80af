package netstack

import (
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// backlog is how many connections may wait in a listener, established or not; beyond it, SYN
// cookies take over (RFC 4987). The data they have received is not part of the memory accounting: 4
// MB at most.
const backlog = 128

// listener accepts TCP connections on a port.
type listener struct {
	*socket
	stack *Stack
}

// checkLocal fails unless at is unspecified or an own address, of a family that the stack has.
func (s *Stack) checkLocal(op string, at netip.AddrPort) error {
	_, own := s.dev.addrs[at.Addr()]
	if !s.has(at.Addr()) || !own && !at.Addr().IsUnspecified() {
		return fmt.Errorf("netstack: %s on %v: %w", op, at, ErrNoAddress)
	}
	return nil
}

// Listen accepts TCP connections on a port of an own address, or of all own addresses of the family
// if the address is unspecified. Port 0 picks one. Such connections do not reach OnTCP. The port
// stays taken while the listener or a connection that it accepted is open: gVisor's port reuse
// would let two listeners share it.
func (s *Stack) Listen(at netip.AddrPort) (net.Listener, error) {
	if err := s.checkLocal("listen", at); err != nil {
		return nil, err
	}
	if !s.begin() {
		return nil, fmt.Errorf("netstack: listen on %v: %w", at, net.ErrClosed)
	}
	defer s.calls.Done()
	wq := new(waiter.Queue)
	ep, terr := s.gv.NewEndpoint(tcp.ProtocolNumber, protocolOf(at.Addr()), wq)
	if terr == nil {
		if terr = bind(ep, at); terr == nil {
			terr = ep.Listen(backlog)
		}
		if terr != nil {
			ep.Close()
		}
	}
	if terr != nil {
		return nil, fmt.Errorf("netstack: listen on %v: %w", at, sysError(terr))
	}
	return &listener{socket: s.newSocket("tcp", ep, wq), stack: s}, nil
}

// bind keeps an IPv6 endpoint from taking IPv4 too.
func bind(ep tcpip.Endpoint, at netip.AddrPort) tcpip.Error {
	if at.Addr().Is6() {
		ep.SocketOptions().SetV6Only(true)
	}
	return ep.Bind(toFull(at))
}

// Accept implements net.Listener; the connections are of type *Conn. A connection for which the
// peer's share of the TCP memory is too small is reset, and Accept waits for the next one.
func (l *listener) Accept() (net.Conn, error) {
	for {
		ep, wq, err := l.accept()
		if err != nil {
			return nil, l.fail("accept", err)
		}
		var from netip.Addr
		if a, err := ep.GetRemoteAddress(); err == nil {
			from = fromFull(a).Addr()
		}
		share, err := l.stack.memory.open(from)
		if err == nil {
			return l.stack.newConn(ep, wq, share), nil
		}
		l.stack.drops.add(DropMemory)
		ep.Abort()
		ep.Close()
	}
}

// accept waits for an established connection.
func (l *listener) accept() (tcpip.Endpoint, *waiter.Queue, error) {
	var (
		ep tcpip.Endpoint
		wq *waiter.Queue
	)
	err := l.await(waiter.ReadableEvents, &l.read, func() tcpip.Error {
		var err tcpip.Error
		ep, wq, err = l.ep.Accept(nil)
		return err
	})
	return ep, wq, err
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.LocalAddr() }

// ListenPacket opens a UDP socket on an own address, or on all own addresses of the family
// if the address is unspecified. Port 0 picks one.
func (s *Stack) ListenPacket(at netip.AddrPort) (net.PacketConn, error) {
	if err := s.checkLocal("listen for UDP", at); err != nil {
		return nil, err
	}
	if !s.begin() {
		return nil, fmt.Errorf("netstack: listen for UDP on %v: %w", at, net.ErrClosed)
	}
	defer s.calls.Done()
	wq := new(waiter.Queue)
	ep, terr := s.gv.NewEndpoint(udp.ProtocolNumber, protocolOf(at.Addr()), wq)
	if terr == nil {
		if terr = bind(ep, at); terr != nil {
			ep.Close()
		}
	}
	if terr != nil {
		return nil, fmt.Errorf("netstack: listen for UDP on %v: %w", at, sysError(terr))
	}
	return &packetConn{s.newSocket("udp", ep, wq)}, nil
}
