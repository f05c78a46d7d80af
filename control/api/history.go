package api

import "time"

// History is what became of peers lately, as a gateway saw it (kind: History).
type History struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Gateway    string `json:"gateway"`
	// Since is when the gateway started: nothing before is known to it.
	Since time.Time `json:"since"`
	// From and To are the time that is shown.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Peers are sorted by name.
	Peers []PeerHistory `json:"peers"`
}

// PeerHistory is what became of one peer.
type PeerHistory struct {
	Peer string `json:"peer"`
	// Points are without a gap and an overlap, the oldest first.
	Points []HistoryPoint `json:"points"`
	// Events are in the order in which they began.
	Events []HistoryEvent `json:"events"`
}

// HistoryPoint is how a peer was for a while. One that stands for several states has the worst of
// them, the greatest RTT and loss, and the mean throughput.
type HistoryPoint struct {
	At time.Time `json:"at"`
	// Seconds is how long it lasted.
	Seconds int64 `json:"seconds"`
	// State is what people were shown; empty while the gateway stood still.
	State PeerState `json:"state,omitempty"`
	// Path is direct, relay or none.
	Path       string  `json:"path,omitempty"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	// LossRatio is the share of packets that connections to the peer lost; nil where none told.
	LossRatio        *float64 `json:"lossRatio,omitempty"`
	RxBytesPerSecond float64  `json:"rxBytesPerSecond"`
	TxBytesPerSecond float64  `json:"txBytesPerSecond"`
	// Outbound is what was found here of the peer, Inbound what the peer reported of this gateway.
	Outbound Outcomes `json:"outbound"`
	Inbound  Outcomes `json:"inbound"`
}

// Outcomes are the verdicts on the three endpoints that peering needs, in one word each.
type Outcomes struct {
	Auth      Outcome `json:"auth"`
	APIServer Outcome `json:"apiServer"`
	Gateway   Outcome `json:"gateway"`
	// Beside is [Reachability.Beside], outbound only; empty where nothing was found beside the endpoints.
	Beside Outcome `json:"beside,omitempty"`
}

// EventKind is what happened.
type EventKind string

// Kinds of events.
const (
	EventJoined  EventKind = "joined"  // it became a peer
	EventPath    EventKind = "path"    // its path changed, or what is known of it
	EventRestart EventKind = "restart" // the peer's gateway was restarted
	EventKey     EventKind = "key"     // it has another key
	EventVerdict EventKind = "verdict" // something was found wrong, until it was not any more
)

// HistoryEvent is something that happened to a peer.
type HistoryEvent struct {
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// Until is when a verdict went; nil of one that stands, and of other events.
	Until *time.Time `json:"until,omitempty"`
	// Code, Check, Direction and Verdict are those of a finding that nothing else explains.
	Code      string  `json:"code,omitempty"`
	Check     string  `json:"check,omitempty"`
	Direction string  `json:"direction,omitempty"`
	Verdict   Outcome `json:"verdict,omitempty"`
	// Event says what happened, and Reason why: of a verdict the cause.
	Event  string `json:"event"`
	Reason string `json:"reason,omitempty"`
}

// Stands reports whether a verdict was in force at a moment.
func (e *HistoryEvent) Stands(at time.Time) bool {
	return e.Kind == EventVerdict && !e.At.After(at) && (e.Until == nil || e.Until.After(at))
}

// HistoryRequest says of what history is wanted.
type HistoryRequest struct {
	// Peers are by name; none stands for all.
	Peers []string
	// Since is how far back; 0 stands for all that is kept.
	Since time.Duration
	// Step has points within so long be made one; 0 gives them as they are kept.
	Step time.Duration
}
