package peer

import (
	"fmt"
	"net/netip"
	"strings"
)

// MaxPaths is how many paths to a peer a handshake initiation is sent on: 16 × 148 bytes.
const MaxPaths = 16

// via separates a path's address from the id of its allocation.
const via = " via "

// Path is one way to a peer: a remote address, reached from the gateway's own socket or through
// an allocation on a relay. It is comparable; the zero value is no path.
type Path struct {
	// Via is "" for our own socket, else the id of an allocation ("relay-3"). Ids are unique
	// during the life of the process.
	Via string
	// Remote is the final destination of datagrams. An IPv4 address is never in its IPv6-mapped
	// form.
	Remote netip.AddrPort
}

// Direct is the path from our own socket to an address.
func Direct(remote netip.AddrPort) Path { return Path{Remote: unmapped(remote)} }

// IsValid reports whether the path has an address and a port.
func (p Path) IsValid() bool { return p.Remote.IsValid() && p.Remote.Port() != 0 }

// String is "203.0.113.8:51820", or "203.0.113.8:51820 via relay-3".
func (p Path) String() string {
	switch {
	case !p.Remote.IsValid():
		return "none"
	case p.Via == "":
		return p.Remote.String()
	default:
		return p.Remote.String() + via + p.Via
	}
}

// ParsePath parses the String form of a valid path.
func ParsePath(s string) (Path, error) {
	text, id, relayed := strings.Cut(s, via)
	addr, err := netip.ParseAddrPort(text)
	if err != nil || relayed && id == "" {
		return Path{}, fmt.Errorf("path %q: want ip:port, or ip:port via RELAY", s)
	}
	return Path{Via: id, Remote: unmapped(addr)}, nil
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
