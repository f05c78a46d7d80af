//go:build !linux

package forward

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// sockets reads UDP sockets, each with its own goroutine.
type sockets struct{}

// socket is a UDP socket, which may be connected.
type socket struct {
	*net.UDPConn
	to   receiver
	conn bool
}

// openFiles is how many files the process may have open.
func openFiles() int64 { return 1 << 30 }

func (s *sockets) dial(to netip.AddrPort, r receiver) (*socket, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	return read(c, r, true, err)
}

func (s *sockets) listen(at netip.AddrPort, r receiver) (*socket, error) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	return read(c, r, false, err)
}

func read(c *net.UDPConn, r receiver, conn bool, err error) (*socket, error) {
	if err != nil {
		return nil, err
	}
	s := &socket{c, r, conn}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			switch {
			case err == nil:
				r.datagram(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), buf[:n])
			case errors.Is(err, net.ErrClosed):
				return
			case conn && errors.Is(err, syscall.ECONNREFUSED):
				r.refused(netip.AddrPort{})
			}
		}
	}()
	return s, nil
}

func (s *socket) close() { _ = s.Close() }

// sendTo sends a datagram; to is invalid for a connected socket.
func (s *socket) sendTo(b []byte, to netip.AddrPort) error {
	if s.conn {
		_, err := s.Write(b)
		return err
	}
	_, err := s.WriteToUDPAddrPort(b, to)
	return err
}

func (s *socket) local() netip.AddrPort { return s.LocalAddr().(*net.UDPAddr).AddrPort() }
