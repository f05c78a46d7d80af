package netstack

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// packetConn is a UDP socket, connected or not. What does not fit the reader's buffer is lost, as
// with the kernel's sockets.
type packetConn struct{ *socket }

var (
	_ net.PacketConn = (*packetConn)(nil)
	_ net.Conn       = (*packetConn)(nil)
)

// ReadFrom implements net.PacketConn; the address is a *net.UDPAddr.
func (c *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.receive(b)
	if err != nil {
		return 0, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// Read implements net.Conn.
func (c *packetConn) Read(b []byte) (int, error) {
	n, _, err := c.receive(b)
	return n, err
}

func (c *packetConn) receive(b []byte) (int, netip.AddrPort, error) {
	var res tcpip.ReadResult
	err := c.await(waiter.ReadableEvents, &c.read, func() tcpip.Error {
		w := tcpip.SliceWriter(b)
		var err tcpip.Error
		res, err = c.ep.Read(&w, tcpip.ReadOptions{NeedRemoteAddr: true})
		if _, tooSmall := err.(*tcpip.ErrBadBuffer); tooSmall && len(b) == 0 {
			err = nil // an empty buffer consumes a datagram without reading any of it
		}
		return err
	})
	if err != nil {
		return 0, netip.AddrPort{}, c.fail("read", err)
	}
	return res.Count, fromFull(res.RemoteAddr), nil
}

// WriteTo implements net.PacketConn; to must be a *net.UDPAddr.
func (c *packetConn) WriteTo(b []byte, to net.Addr) (int, error) {
	udp, ok := to.(*net.UDPAddr)
	if !ok || udp == nil {
		return 0, c.fail("write", fmt.Errorf("%v is no UDP address", to))
	}
	a := udp.AddrPort()
	if a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port()); a.Addr().Is4() != c.local.Addr().Is4() && c.local.Addr().IsValid() {
		return 0, c.fail("write", ErrNoAddress)
	}
	full := toFull(a)
	return c.send(b, &full)
}

// Write implements net.Conn.
func (c *packetConn) Write(b []byte) (int, error) { return c.send(b, nil) }

func (c *packetConn) send(b []byte, to *tcpip.FullAddress) (int, error) {
	n := 0
	var r bytes.Reader
	err := c.await(waiter.WritableEvents, &c.write, func() tcpip.Error {
		r.Reset(b)
		written, err := c.ep.Write(&r, tcpip.WriteOptions{To: to})
		n = int(written)
		return err
	})
	if err != nil {
		return n, c.fail("write", err)
	}
	return n, nil
}
