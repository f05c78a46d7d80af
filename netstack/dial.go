package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// dialFailed wraps the error of a failed dial.
func dialFailed(network string, to netip.AddrPort, err error) error {
	var addr net.Addr = net.TCPAddrFromAddrPort(to)
	if network == "udp" {
		addr = net.UDPAddrFromAddrPort(to)
	}
	return &net.OpError{Op: "dial", Net: network, Addr: addr, Err: err}
}

// DialTCP connects to an overlay address. It returns ECONNREFUSED if the peer refuses, ETIMEDOUT
// after two minutes of silence (or ctx's error before), and ENOBUFS if the peer's share of the TCP
// memory is used up.
func (s *Stack) DialTCP(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	if !s.has(to.Addr()) {
		return nil, dialFailed("tcp", to, ErrNoAddress)
	}
	if err := ctx.Err(); err != nil {
		return nil, dialFailed("tcp", to, err)
	}
	if !s.begin() {
		return nil, dialFailed("tcp", to, net.ErrClosed)
	}
	defer s.calls.Done()
	share, err := s.memory.open(to.Addr())
	if err != nil {
		return nil, dialFailed("tcp", to, err)
	}
	wq := new(waiter.Queue)
	ep, terr := s.gv.NewEndpoint(tcp.ProtocolNumber, protocolOf(to.Addr()), wq)
	if terr != nil {
		share.close()
		return nil, dialFailed("tcp", to, sysError(terr))
	}
	if err := s.connect(ctx, ep, wq, to); err != nil {
		ep.Close()
		share.close()
		return nil, dialFailed("tcp", to, err)
	}
	return s.newConn(ep, wq, share), nil
}

// DialContext has the signature that net.Dialer and http.Transport use. It supports "tcp" and "udp"
// (with an optional 4 or 6) and addresses of the form IP:port. Names are not resolved: the overlay
// has none.
func (s *Stack) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("netstack: dial %s %q: not an IP address and port: %w", network, address, err)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	switch network {
	case "tcp", "tcp4", "tcp6":
		c, err := s.DialTCP(ctx, to)
		if err != nil {
			return nil, err // not c: an interface around a nil *Conn is not nil
		}
		return c, nil
	case "udp", "udp4", "udp6":
		return s.dialUDP(ctx, to)
	default:
		return nil, fmt.Errorf("netstack: dial %q %s: %w", network, address, errors.ErrUnsupported)
	}
}

func (s *Stack) dialUDP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if !s.has(to.Addr()) {
		return nil, dialFailed("udp", to, ErrNoAddress)
	}
	if !s.begin() {
		return nil, dialFailed("udp", to, net.ErrClosed)
	}
	defer s.calls.Done()
	wq := new(waiter.Queue)
	ep, terr := s.gv.NewEndpoint(udp.ProtocolNumber, protocolOf(to.Addr()), wq)
	if terr != nil {
		return nil, dialFailed("udp", to, sysError(terr))
	}
	if err := s.connect(ctx, ep, wq, to); err != nil {
		ep.Close()
		return nil, dialFailed("udp", to, err)
	}
	return &packetConn{s.newSocket("udp", ep, wq)}, nil
}
