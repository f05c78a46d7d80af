package catalogue

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/discovery/special"
)

// RoutedTo returns the upstream's IP address, if it is known.
func (v *view) RoutedTo() string {
	a, err := netip.ParseAddrPort(or(v.Remote, v.Upstream))
	if err != nil {
		return ""
	}
	return a.Addr().Unmap().String()
}

// HostName returns the first name without its port, or a placeholder. Endpoint names come from our
// configuration or from a peer: only a plain one is offered to be pasted.
func (v *view) HostName() string {
	host := strings.TrimSuffix(v.FirstName(), ":"+portOf(v.FirstName()))
	return pasteable(host, "NAME")
}

// ByItself reports whether the addressed host itself rejects the packets.
func (v *view) ByItself() bool {
	a, ok := special.Host(v.Address)
	by, is := special.Host(v.By)
	return ok && is && a == by
}

// OwnHost returns this gateway's address of the family in use, as others see it.
func (v *view) OwnHost() string {
	if a, ok := special.Host(v.OwnAddress(v.Address)); ok {
		return a.String()
	}
	return "OWN-IP"
}

// Family returns 4 or 6, the family of the address in use, or 0 if unknown.
func (v *view) Family() int {
	switch a, ok := special.Host(v.Address); {
	case !ok:
		return 0
	case a.Is6():
		return 6
	}
	return 4
}

// TooLarge returns nftables' name of the ICMP error for too large packets of the family in use.
func (v *view) TooLarge() string {
	if v.Family() == 6 {
		return "icmpv6 type packet-too-big"
	}
	return "icmp type destination-unreachable"
}

// LossHost and LossPort are where to look for a hop that loses packets.
func (v *view) LossHost() string {
	if a, ok := special.Host(v.lossAddress()); ok {
		return a.String()
	}
	return "ADDRESS"
}

func (v *view) LossPort() string { return or(portOf(v.lossAddress()), v.OwnPort()) }

// lossAddress is the address that was dialled or, if the check has none, one that is tried; empty
// without any. What a peer reports was tried is an address of this gateway; the way to the peer leads
// along the same hops.
func (v *view) lossAddress() string {
	tried := []string{v.Address, v.Reached}
	if v.Reporter() == "" {
		tried = append(tried, v.Target())
		for _, c := range v.Candidates {
			if !c.Relayed() {
				tried = append(tried, c.Address)
			}
		}
	}
	i := slices.IndexFunc(tried, func(a string) bool { _, ok := special.Host(a); return ok })
	if i < 0 {
		return ""
	}
	return tried[i]
}

// PublicAddress is this gateway's host as others see it, with a port.
func (v *view) PublicAddress(port string) string {
	host := "OWN-IP"
	if a, ok := special.Host(first(v.Own)); ok {
		host = a.String()
	}
	return net.JoinHostPort(host, port)
}

// OwnPort returns the port that this gateway listens on.
func (v *view) OwnPort() string {
	if v.Port == 0 {
		return "51820"
	}
	return strconv.Itoa(int(v.Port))
}

// Headers returns the bytes that the tunnel adds to a packet: WireGuard, UDP, and IPv6 or the IP
// version of the address in use.
func (v *view) Headers() int {
	const wireGuard, udp, ipv4, ipv6 = 32, 8, 20, 40
	if a, ok := special.Host(v.Address); ok && a.Is4() {
		return wireGuard + udp + ipv4
	}
	return wireGuard + udp + ipv6
}

// Outside returns the size of a packet outside the tunnel for its size inside, 0 if unknown.
func (v *view) Outside(inside int) int {
	if inside == 0 {
		return 0
	}
	return inside + v.Headers()
}

// Rejected reports whether packets to the peer are rejected, not merely lost.
func (v *view) Rejected() bool {
	return slices.ContainsFunc(v.Candidates, func(c Candidate) bool { return c.Reason == "port unreachable" })
}

// BehindNAT reports whether there is known to be a NAT.
func (v *view) BehindNAT(n NAT) bool {
	return n.Mapping != "" && n.Mapping != "unknown" && n.Mapping != "none"
}
