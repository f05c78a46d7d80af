package api

import "time"

// History is the recent history of peers, as a gateway saw it (kind: History).
type History struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Gateway    string `json:"gateway"`
	// Since is when the gateway started. It knows nothing from before.
	Since time.Time `json:"since"`
	// From and To are the range that is shown.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Peers are sorted by name.
	Peers []PeerHistory `json:"peers"`
}

// PeerHistory is the history of one peer.
type PeerHistory struct {
	Peer string `json:"peer"`
	// Points have neither gaps nor overlaps, the oldest first.
	Points []HistoryPoint `json:"points"`
	// Events are in the order in which they began.
	Events []HistoryEvent `json:"events"`
}

// HistoryPoint is a peer's state for a while. A point that combines several has the worst state,
// the greatest RTT and loss, and the mean throughput.
type HistoryPoint struct {
	At time.Time `json:"at"`
	// Seconds is how long it lasted.
	Seconds int64 `json:"seconds"`
	// State is the state that was shown; empty while there were no samples, such as while the
	// gateway was suspended.
	State PeerState `json:"state,omitempty"`
	// Path is direct, relay or none.
	Path       string  `json:"path,omitempty"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	// LossRatio is the share of packets that connections to the peer lost; nil if none reported it.
	LossRatio        *float64 `json:"lossRatio,omitempty"`
	RxBytesPerSecond float64  `json:"rxBytesPerSecond"`
	TxBytesPerSecond float64  `json:"txBytesPerSecond"`
	// Outbound is what was measured here, Inbound what the peer reported about this gateway.
	Outbound Outcomes `json:"outbound"`
	Inbound  Outcomes `json:"inbound"`
}

// Outcomes are the verdicts on the three endpoints that peering needs.
type Outcomes struct {
	Auth      Outcome `json:"auth"`
	APIServer Outcome `json:"apiServer"`
	Gateway   Outcome `json:"gateway"`
	// Beside is [Reachability.Beside], outbound only; empty if there is no such problem.
	Beside Outcome `json:"beside,omitempty"`
}

// EventKind is a kind of event.
type EventKind string

// Kinds of events.
const (
	EventJoined  EventKind = "joined"  // it became a peer
	EventPath    EventKind = "path"    // its path changed, or what is known of it
	EventRestart EventKind = "restart" // the peer's gateway was restarted
	EventKey     EventKind = "key"     // it has another key
	EventVerdict EventKind = "verdict" // a problem was found; it ends with Until
)

// HistoryEvent is something that happened to a peer.
type HistoryEvent struct {
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// Until is when a verdict ended; nil while it lasts, and for other events.
	Until *time.Time `json:"until,omitempty"`
	// Code, Check, Direction and Verdict are those of a finding that is not explained by another.
	Code      string  `json:"code,omitempty"`
	Check     string  `json:"check,omitempty"`
	Direction string  `json:"direction,omitempty"`
	Verdict   Outcome `json:"verdict,omitempty"`
	// Event says what happened, and Reason why: for a verdict, its cause.
	Event  string `json:"event"`
	Reason string `json:"reason,omitempty"`
}

// Stands reports whether a verdict was in force at a moment.
func (e *HistoryEvent) Stands(at time.Time) bool {
	return e.Kind == EventVerdict && !e.At.After(at) && (e.Until == nil || e.Until.After(at))
}

// HistoryRequest selects what history to return.
type HistoryRequest struct {
	// Peers are names; none means all.
	Peers []string
	// Since is how far back; 0 means everything that is kept.
	Since time.Duration
	// Step merges points within that duration into one; 0 returns them as they are kept.
	Step time.Duration
}
