package forward

import "github.com/postern-dev/postern/control/api"

// Limits bound what is open at once. Zero values take the defaults.
//
// PeerFlows, HalfOpen and Reserve count inbound and outbound connections of a peer apart,
// so that local clients cannot shut a peer out nor the other way round. They and PeerRate
// count connections to auth apart from those to all other services.
type Limits struct {
	// PeerFlows is the most connections of one peer in one direction.
	PeerFlows int
	// HalfOpen is the most connections of one peer that are being opened: the upstream
	// is being dialled or the handshake is not complete.
	HalfOpen int
	// Total is the most connections of the gateway.
	Total int
	// Reserve is how many connections a peer may have in one direction even when Total
	// is reached, so that no peer can take the last place of another.
	Reserve int
	// PeerRate is how many connections a second a peer may open towards us in the long run.
	// PeerBurst is how many come at once: unless told more than may be open, since after an
	// outage they all come again. What is beyond is refused before anything is done for it.
	PeerRate, PeerBurst int
	// Buffers is the most memory for copying at full speed, in bytes; PeerBuffers is
	// one peer's share of it. Beyond them copying goes on with small buffers.
	Buffers, PeerBuffers int
}

// Defaults: a virtual kubelet with a few hundred pods holds some dozens of watches and
// as many exec and log streams. Two goroutines, two sockets and two small buffers make
// an idle connection cost about 30 KB, so 4096 of them stay near 120 MB.
const (
	defaultPeerFlows = 1024
	defaultHalfOpen  = 128
	defaultTotal     = 4096
	defaultReserve   = 16
	defaultBuffers   = 16 << 20
	// The share is half: one peer alone does not need more (64 streams at full speed),
	// and two cannot starve a third, since small buffers are outside the budget.
	peerBufferShare = 2
)

func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.PeerFlows, defaultPeerFlows)
	set(&l.HalfOpen, defaultHalfOpen)
	set(&l.Total, defaultTotal)
	set(&l.Reserve, defaultReserve)
	set(&l.PeerRate, api.DefaultConnectionsPerSecond)
	set(&l.PeerBurst, l.PeerFlows+l.PeerRate)
	set(&l.Buffers, defaultBuffers)
	set(&l.PeerBuffers, l.Buffers/peerBufferShare)
	return l
}

// usage counts one peer's connections in one direction.
type usage struct {
	flows, halfOpen int
}

// admit decides whether one more connection fits. The empty reason admits it.
func (l Limits) admit(u usage, total int) Reason {
	switch {
	case u.flows >= l.PeerFlows:
		return PeerFlowLimit
	case u.halfOpen >= l.HalfOpen:
		return PeerHalfOpenLimit
	case total >= l.Total && u.flows >= l.Reserve:
		return TotalFlowLimit
	}
	return ""
}
