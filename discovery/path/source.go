package path

import "slices"

// Sources of candidates, in the words of the status document.
const (
	SourceAdvertised = "advertised" // configured by the operator
	SourceService    = "service"    // a Kubernetes Service
	SourcePortmap    = "portmap"    // a mapping asked of a router
	SourceLAN        = "lan"        // heard on the local network
	SourceDNS        = "dns"        // found in the DNS
	SourceHost       = "host"       // an address of an interface
	SourceSTUN       = "stun"       // seen by a STUN server
	SourcePeer       = "peer"       // seen by the peer: peer-reflexive
	SourceRelay      = "relay"      // allocated on a TURN server
)

// sourceOrder ranks sources; an address known from several counts by the first. That the
// peer was seen there is the least that can be known of one: it must not hide that the
// address is a relay's.
var sourceOrder = [...]string{
	SourceAdvertised, SourceService, SourcePortmap, SourceLAN, SourceDNS,
	SourceHost, SourceSTUN, SourceRelay, SourcePeer,
}

// KnownSource reports whether a source is one of those above.
func KnownSource(source string) bool { return slices.Contains(sourceOrder[:], source) }

// sourceRank is the place of a source in sourceOrder; unknown words come last.
func sourceRank(source string) int {
	if i := slices.Index(sourceOrder[:], source); i >= 0 {
		return i
	}
	return len(sourceOrder)
}

// stable says whether an address of that source stands for itself: whoever dials it
// needs no help from the other side.
func stable(source string) bool {
	switch source {
	case SourceAdvertised, SourceService, SourcePortmap:
		return true
	}
	return false
}
