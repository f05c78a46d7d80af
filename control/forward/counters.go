package forward

import "sync/atomic"

// Reason says why a connection was refused. The values are metric labels.
type Reason string

// Reasons for refusing a connection.
const (
	UnknownPeer       Reason = "unknown_peer"
	NoService         Reason = "no_service"
	NotGranted        Reason = "not_granted"
	NotAdmitted       Reason = "not_admitted"
	UpstreamDown      Reason = "upstream_down"
	NoneReady         Reason = "none_ready"
	HandshakeFailed   Reason = "handshake_failed"
	PeerDown          Reason = "peer_down"
	PeerFlowLimit     Reason = "peer_flow_limit"
	PeerHalfOpenLimit Reason = "peer_half_open_limit"
	TotalFlowLimit    Reason = "total_flow_limit"
	ClientLimit       Reason = "client_limit"
	PeerRateLimit     Reason = "peer_rate_limit"
	Stopping          Reason = "stopping"
)

// Reasons lists all of them, so that counters exist before they count.
func Reasons() []Reason {
	return []Reason{UnknownPeer, NoService, NotGranted, NotAdmitted, UpstreamDown, NoneReady, HandshakeFailed, PeerDown,
		PeerFlowLimit, PeerHalfOpenLimit, TotalFlowLimit, ClientLimit, PeerRateLimit, Stopping}
}

// Counters count what has happened in one direction since the start.
type Counters struct {
	// Accepted counts the connections that were established.
	Accepted uint64
	// Refused counts those that were not, by reason.
	Refused map[Reason]uint64
}

// counters are the live values. The map is made once and never changes.
type counters struct {
	accepted atomic.Uint64
	refused  map[Reason]*atomic.Uint64
}

func newCounters() *counters {
	c := &counters{refused: make(map[Reason]*atomic.Uint64)}
	for _, r := range Reasons() {
		c.refused[r] = new(atomic.Uint64)
	}
	return c
}

func (c *counters) refuse(r Reason) { c.refused[r].Add(1) }

func (c *counters) snapshot() Counters {
	s := Counters{Accepted: c.accepted.Load(), Refused: make(map[Reason]uint64, len(c.refused))}
	for r, n := range c.refused {
		s.Refused[r] = n.Load()
	}
	return s
}
