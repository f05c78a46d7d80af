package path

import "slices"

// Sources of candidates, as named in the status document.
const (
	SourceAdvertised = "advertised" // configured by the operator
	SourceService    = "service"    // a Kubernetes Service
	SourcePortmap    = "portmap"    // a mapping requested from a router
	SourceLAN        = "lan"        // heard on the local network
	SourceDNS        = "dns"        // found in the DNS
	SourceHost       = "host"       // an address of an interface
	SourceSTUN       = "stun"       // seen by a STUN server
	SourcePeer       = "peer"       // seen by the peer: peer-reflexive
	SourceRelay      = "relay"      // allocated on a TURN server
)

// sourceOrder ranks sources; an address known from several counts as the first. SourcePeer says
// least about an address, so it must not hide that the address is a relay's.
var sourceOrder = [...]string{
	SourceAdvertised, SourceService, SourcePortmap, SourceLAN, SourceDNS,
	SourceHost, SourceSTUN, SourceRelay, SourcePeer,
}

// KnownSource reports whether a source is one of those above.
func KnownSource(source string) bool { return slices.Contains(sourceOrder[:], source) }

// sourceRank returns a source's position in sourceOrder; unknown sources come last.
func sourceRank(source string) int {
	if i := slices.Index(sourceOrder[:], source); i >= 0 {
		return i
	}
	return len(sourceOrder)
}

// stable reports whether an address from that source can be dialled without help from the other
// side.
func stable(source string) bool {
	switch source {
	case SourceAdvertised, SourceService, SourcePortmap:
		return true
	}
	return false
}
