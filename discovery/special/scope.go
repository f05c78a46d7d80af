package special

import "net/netip"

// Scope names what keeps an address from being dialled from anywhere, by the registries of
// RFC 6890; it is empty for one that can be, and for a host name.
func Scope(address string) string {
	a, ok := Host(address)
	if !ok {
		return ""
	}
	switch {
	case a.IsLoopback():
		return "loopback"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsUnspecified(), a.IsMulticast():
		return "no address of a host"
	case a.Is4() && a.IsPrivate():
		return "private" // RFC 1918
	case CarrierGrade.Contains(a):
		return "carrier-grade NAT" // RFC 6598
	case a.IsPrivate():
		return "unique local" // RFC 4193
	}
	return ""
}

// Host is the IP address of an address with a port, or without.
func Host(address string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(address); err == nil {
		return ap.Addr().Unmap(), true
	}
	a, err := netip.ParseAddr(address)
	return a.Unmap(), err == nil
}
