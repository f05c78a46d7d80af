package behaviour

import "net/netip"

// Destinations returns the addresses that the test may have sent to, or may have made the server
// answer from.
func (t *Test) Destinations() []netip.AddrPort {
	if !t.other.IsValid() || t.answerOther == nil {
		return []netip.AddrPort{t.server}
	}
	return []netip.AddrPort{
		t.server, netip.AddrPortFrom(t.server.Addr(), t.other.Port()),
		netip.AddrPortFrom(t.other.Addr(), t.server.Port()), t.other,
	}
}

// Mapped returns the address from which the server saw the socket's datagrams come; invalid while
// unknown. If it is the host's own, there is no NAT, and the filtering is a firewall's.
func (t *Test) Mapped() netip.AddrPort {
	if t.first == nil {
		return netip.AddrPort{}
	}
	return t.first.mapped
}
