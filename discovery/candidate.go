package discovery

import (
	"cmp"
	"net/netip"
	"slices"
)

// Sources of candidates.
const (
	SourceAdvertised = "advertised" // configured by the operator
	SourceService    = "service"    // a Kubernetes Service
	SourcePortmap    = "portmap"    // a mapping asked of a router
	SourceLAN        = "lan"        // heard on the local network
	SourceDNS        = "dns"        // found in the DNS
	SourceHost       = "host"       // an address of an interface
	SourceSTUN       = "stun"       // seen by a STUN server
	SourcePeer       = "peer"       // seen by a peer
	SourceRelay      = "relay"      // allocated on a TURN server
)

// Candidate is an address at which the gateway may be reached.
type Candidate struct {
	Addr   netip.AddrPort
	Source string
}

// rank is the place of a source in the order of candidates, the best first.
func rank(source string) int {
	order := [...]string{
		SourceAdvertised, SourceService, SourcePortmap, SourceLAN, SourceDNS,
		SourceHost, SourceSTUN, SourcePeer, SourceRelay,
	}
	if i := slices.Index(order[:], source); i >= 0 {
		return i
	}
	return len(order)
}

// arrange brings candidates into their order and drops repeated addresses. Advertised
// ones stay as the operator wrote them; others go global before private, IPv4 before
// IPv6 (most underlays have it), then by value, so that the list is the same whenever
// the facts are.
func arrange(cs []Candidate) []Candidate {
	slices.SortStableFunc(cs, func(a, b Candidate) int {
		if c := cmp.Compare(rank(a.Source), rank(b.Source)); c != 0 || a.Source == SourceAdvertised {
			return c
		}
		return compareAddrs(a.Addr, b.Addr)
	})
	seen := make(map[netip.AddrPort]bool, len(cs))
	return slices.DeleteFunc(cs, func(c Candidate) bool {
		again := seen[c.Addr]
		seen[c.Addr] = true
		return again
	})
}

func compareAddrs(a, b netip.AddrPort) int {
	private := func(x netip.AddrPort) int {
		if x.Addr().IsPrivate() {
			return 1
		}
		return 0
	}
	if c := cmp.Compare(private(a), private(b)); c != 0 {
		return c
	}
	return a.Compare(b) // IPv4 sorts before IPv6.
}
