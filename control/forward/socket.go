package forward

import "net/netip"

// receiver handles what arrives at a socket, one call after another. It must not block.
type receiver interface {
	// datagram must not keep b.
	datagram(from netip.AddrPort, b []byte)
	// refused reports that nobody accepts what was sent there.
	refused(to netip.AddrPort)
}

// connected is the side of a flow with its own socket.
type connected struct{ *socket }

func (c connected) send(b []byte) error { return c.sendTo(b, netip.AddrPort{}) }
