package discovery

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/discovery/path"
)

// Sources of candidates: those of package path.
const (
	SourceAdvertised = path.SourceAdvertised
	SourceService    = path.SourceService
	SourcePortmap    = path.SourcePortmap
	SourceLAN        = path.SourceLAN
	SourceDNS        = path.SourceDNS
	SourceHost       = path.SourceHost
	SourceSTUN       = path.SourceSTUN
	SourcePeer       = path.SourcePeer
	SourceRelay      = path.SourceRelay
)

// Candidate is an address at which a gateway may be reached.
type Candidate = path.Candidate

// rank is a source's position in the order of candidates, best first.
func rank(source string) int {
	order := [...]string{
		SourceAdvertised, SourceService, SourcePortmap, SourceLAN, SourceDNS,
		SourceHost, SourceSTUN, SourceRelay, SourcePeer,
	}
	if i := slices.Index(order[:], source); i >= 0 {
		return i
	}
	return len(order)
}

// arrange sorts candidates and drops repeated addresses. Advertised ones stay in the operator's
// order. Others are sorted global before private, IPv4 before IPv6 (most underlays have it), then
// by value, so that the same facts always give the same list.
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
	return a.Compare(b) // IPv4 sorts before IPv6
}

// unmapped returns an address with an IPv4-mapped form converted to IPv4.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
