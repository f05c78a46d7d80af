package forward

import "net/netip"

// receiver is told of what comes to a socket, one call after another. It may not wait.
type receiver interface {
	// datagram is only lent b.
	datagram(from netip.AddrPort, b []byte)
	// refused is told that nobody takes what was sent there.
	refused(to netip.AddrPort)
}

// connected is the side of a flow that has a socket of its own.
type connected struct{ *socket }

func (c connected) send(b []byte) error { return c.sendTo(b, netip.AddrPort{}) }
