package api

import "time"

// Status is a gateway's view of itself and its peers at one moment (kind: Status).
type Status struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Gateway    GatewayStatus `json:"gateway"`
	Peers      []PeerStatus  `json:"peers"`
	// Problems are what is wrong now and has no place among the peers' endpoints, errors first:
	// this gateway's own, and warnings of the ways to peers. They have no stages.
	Problems []Check `json:"problems,omitempty"`
	// Alarms are the warnings with a code since the start, once for each subject.
	Alarms []Alarm `json:"alarms,omitempty"`
}

// GatewayStatus describes the gateway that answers.
type GatewayStatus struct {
	Name       string    `json:"name"`
	PublicKey  string    `json:"publicKey"`
	Address    string    `json:"address"`
	Version    string    `json:"version"`
	ListenPort uint16    `json:"listenPort"`
	StartedAt  time.Time `json:"startedAt"`
	// ConfigUndoneAt is when the configuration is again what it was before, unless it is confirmed.
	ConfigUndoneAt *time.Time  `json:"configUndoneAt,omitempty"`
	NAT            NAT         `json:"nat"`
	Candidates     []Candidate `json:"candidates"`
}

// NAT behaviour in the words of RFC 4787.
type NAT struct {
	Mapping         string   `json:"mapping"`
	Filtering       string   `json:"filtering"`
	PublicAddresses []string `json:"publicAddresses"`
}

// Candidate sources.
const (
	SourceAdvertised = "advertised"
	SourceService    = "service"
	SourcePortmap    = "portmap"
	SourceLAN        = "lan"
	SourceDNS        = "dns"
	SourceHost       = "host"
	SourceSTUN       = "stun"
	SourcePeer       = "peer"
	SourceRelay      = "relay"
)

// Candidate is an address at which a gateway may be reached. State, RTTSeconds and
// Reason are set only for a peer's candidates.
type Candidate struct {
	Address string `json:"address"`
	Source  string `json:"source"`
	// Relay is the server by whose allocation the address is tried; empty for our own
	// socket.
	Relay      string  `json:"relay,omitempty"`
	State      string  `json:"state,omitempty"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	Reason     string  `json:"reason,omitempty"`
}

// PeerState sums up a peering.
type PeerState string

// States of a peer.
const (
	StateConnected  PeerState = "connected"
	StateConnecting PeerState = "connecting"
	StatePending    PeerState = "pending"
	StateFailed     PeerState = "failed"
	// StateUnconfirmed is what a connected peer is shown as while UnconfirmedSince is set.
	StateUnconfirmed PeerState = "unconfirmed"
)

// PeerStatus describes one peer.
type PeerStatus struct {
	Name      string    `json:"name"`
	PublicKey string    `json:"publicKey"`
	Address   string    `json:"address"`
	Mode      string    `json:"mode"`
	State     PeerState `json:"state"`
	Reason    string    `json:"reason,omitempty"`
	// UnconfirmedSince is since when what is sent to a connected peer has no answer. What is
	// said of its services is of before then.
	UnconfirmedSince *time.Time `json:"unconfirmedSince,omitempty"`
	Stock            bool       `json:"stock,omitempty"`
	// Labels are this operator's, of the configuration or the Peer object.
	Labels  map[string]string `json:"labels,omitempty"`
	Version string            `json:"version,omitempty"`
	Allow   []string          `json:"allow"`
	// UndoneAt is when what it may reach and the listeners for it are again what they were before,
	// unless they are confirmed.
	UndoneAt   *time.Time  `json:"undoneAt,omitempty"`
	Offers     []string    `json:"offers"`
	Local      []Local     `json:"local"`
	Path       Path        `json:"path"`
	Candidates []Candidate `json:"candidates"`
	NextTry    *time.Time  `json:"nextTry,omitempty"`
	Identity   *Identity   `json:"identity,omitempty"`
	// User is the peer's user at this cluster's API server, to which RBAC is bound; empty
	// when no identities are issued here.
	User  string `json:"user,omitempty"`
	Flows []Flow `json:"flows"`
	// UDPFlows is how many flows of datagrams there are; Flows lists those that were used last.
	UDPFlows            int          `json:"udpFlows,omitempty"`
	LastHandshake       *time.Time   `json:"lastHandshake,omitempty"`
	RxBytes             uint64       `json:"rxBytes"`
	TxBytes             uint64       `json:"txBytes"`
	RxBytesPerSecond    float64      `json:"rxBytesPerSecond"`
	TxBytesPerSecond    float64      `json:"txBytesPerSecond"`
	Reachability        Reachability `json:"reachability"`
	ApprovalFingerprint string       `json:"approvalFingerprint,omitempty"`
}

// Shown is the state that people are shown.
func (p *PeerStatus) Shown() PeerState {
	if p.State == StateConnected && p.UnconfirmedSince != nil {
		return StateUnconfirmed
	}
	return p.State
}

// Local is a listener on this machine that leads to a service of the peer.
type Local struct {
	Service string `json:"service"`
	Address string `json:"address"`
	// Error says why the listener is not there.
	Error string `json:"error,omitempty"`
}

// Kinds of path.
const (
	PathDirect = "direct"
	PathRelay  = "relay"
	PathNone   = "none"
)

// Path is the underlay route in use to a peer.
type Path struct {
	Kind   string `json:"kind"`
	Remote string `json:"remote,omitempty"`
	// Relay is the server by whose allocation we send; empty when we send from our own
	// socket, be it to the peer's address on a relay.
	Relay      string     `json:"relay,omitempty"`
	Source     string     `json:"source,omitempty"`
	RTTSeconds float64    `json:"rttSeconds,omitempty"`
	Since      *time.Time `json:"since,omitempty"`
	// Proven is when a probe over the address in use was last answered, also before there is a session;
	// nil while what is asked there has no answer, and of a peer that is not probed.
	Proven *time.Time `json:"proven,omitempty"`
	Reason string     `json:"reason,omitempty"`
	MTU    int        `json:"mtu,omitempty"`
	// Traffic is what TCP connections to the peer have shown of the path lately; nil if there
	// were none, or the path is short.
	Traffic *Traffic    `json:"traffic,omitempty"`
	History []PathEvent `json:"history"`
}

// What limits how fast data is sent.
const (
	LimitData       = "data"       // there is no more to send, or the receiver takes no more
	LimitBandwidth  = "bandwidth"  // what the path delivers
	LimitCongestion = "congestion" // others share it
	LimitPolicer    = "policer"    // a rate limiter drops what exceeds its rate
)

// Traffic is what TCP connections through the tunnel have shown of the path to a peer, in the
// direction to it: they share the path, and what is known of it.
type Traffic struct {
	Connections int `json:"connections"`
	// LimitedBy is data, bandwidth, congestion or policer; empty while nothing is sent.
	LimitedBy string `json:"limitedBy,omitempty"`
	// BytesPerSecond is the most of payload that was delivered lately; 0 is not known.
	BytesPerSecond float64 `json:"bytesPerSecond"`
	// PolicedBytesPerSecond is what a rate limiter lets through; 0 if there seems to be none.
	PolicedBytesPerSecond float64 `json:"policedBytesPerSecond,omitempty"`
	// RTTSeconds is now, and BaseRTTSeconds without a queue; 0 is not known.
	RTTSeconds     float64 `json:"rttSeconds"`
	BaseRTTSeconds float64 `json:"baseRTTSeconds,omitempty"`
	// LossRatio is the share of packets that are lost whatever the rate, of LossSample packets that
	// met no queue lately, and QueueLossRatio of those that full queues drop.
	LossRatio      float64 `json:"lossRatio"`
	QueueLossRatio float64 `json:"queueLossRatio"`
	LossSample     int64   `json:"lossSample"`
	// InFlightBytes are sent and not acknowledged, WindowBytes may be.
	InFlightBytes int `json:"inFlightBytes"`
	WindowBytes   int `json:"windowBytes"`
	// IdleSeconds is how long ago something was sent last.
	IdleSeconds float64 `json:"idleSeconds"`
}

// lossKnown is of how many packets a loss is known: of 1 %, which is ten of them, within a third.
const lossKnown = 1000

// LossKnown reports whether LossRatio and QueueLossRatio are of enough packets to be told. A change
// of the path, and a queue that overflowed, begin the sample again.
func (t *Traffic) LossKnown() bool { return t != nil && t.LossSample >= lossKnown }

// PathEvent is one change of a path.
type PathEvent struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Reason string    `json:"reason"`
}

// Identity is what the peer issued to us for its API server.
type Identity struct {
	// User is who we are there; empty when a token does not tell.
	User     string    `json:"user,omitempty"`
	NotAfter time.Time `json:"notAfter"`
}

// Flow is one open connection through the tunnel, or a flow of datagrams.
type Flow struct {
	Direction string    `json:"direction"` // "inbound" or "outbound"
	Protocol  Protocol  `json:"protocol"`
	Service   string    `json:"service"`
	Remote    string    `json:"remote"`
	RxBytes   uint64    `json:"rxBytes"`
	TxBytes   uint64    `json:"txBytes"`
	StartedAt time.Time `json:"startedAt"`
	// WaitingBytes wait here until the path has room, InFlightBytes are sent to the peer and not
	// acknowledged; not known of connections over short paths.
	WaitingBytes  int `json:"waitingBytes,omitempty"`
	InFlightBytes int `json:"inFlightBytes,omitempty"`
}

// Reachability is what works, in both directions: Outbound is measured here, Inbound
// is what the peer reports about reaching us.
type Reachability struct {
	Outbound Targets `json:"outbound"`
	Inbound  Targets `json:"inbound"`
	// Beside is the worst of Status.Problems that is about the way to this peer; empty where there is none.
	Beside Outcome `json:"beside,omitempty"`
}

// On is the verdict on one of the three endpoints in a direction.
func (r *Reachability) On(direction, target string) *Verdict {
	t := &r.Outbound
	if direction == DirectionInbound {
		t = &r.Inbound
	}
	switch target {
	case ServiceAuth:
		return &t.Auth
	case ServiceAPIServer:
		return &t.APIServer
	}
	return &t.Gateway
}

// Targets are the three endpoints that peering needs.
type Targets struct {
	Auth      Verdict `json:"auth"`
	APIServer Verdict `json:"apiServer"`
	Gateway   Verdict `json:"gateway"`
}

// Outcome is a verdict's first word.
type Outcome string

// Outcomes. Unknown means that nobody could tell; Off that the other side does not
// offer the service to us.
const (
	OK      Outcome = "ok"
	Warning Outcome = "warning"
	Error   Outcome = "error"
	Unknown Outcome = "unknown"
	Off     Outcome = "off"
)

// Confidence is how sure the cause of an error or a warning is.
type Confidence string

// Confidences. Certain is what this machine or an authenticated peer says, or what was tried; Likely
// what anybody can say, or a silence that has lasted; Tentative a silence of seconds.
const (
	Certain   Confidence = "certain"
	Likely    Confidence = "likely"
	Tentative Confidence = "tentative"
)

// Verdict is the result of a check.
type Verdict struct {
	Verdict Outcome `json:"verdict"`
	// Confidence is empty where nothing is wrong, of what depends on another check, and of what
	// a peer reports.
	Confidence Confidence `json:"confidence,omitempty"`
	Code       string     `json:"code,omitempty"`
	Stage      string     `json:"stage,omitempty"`
	// Place is where the fault is, in words, if the code tells; else it is on the way, which has its own.
	Place string `json:"place,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Steps are what to do, Fix the same in words.
	Steps Steps  `json:"steps,omitempty"`
	Fix   string `json:"fix,omitempty"`
	// Command is the one command or rule of the steps that is to be typed at this gateway, ready to
	// be copied; empty where they are a decision, offer several, or send to the other side.
	Command string `json:"command,omitempty"`
	// By is the address of the router that refuses what is sent, of PST0123; empty where it is not known.
	By         string     `json:"by,omitempty"`
	RTTSeconds float64    `json:"rttSeconds,omitempty"`
	CheckedAt  *time.Time `json:"checkedAt,omitempty"`
	Via        string     `json:"via,omitempty"` // "direct" or "in-band"
}

// Lab is the outcome of `postern lab --once -o json` (kind: Lab).
type Lab struct {
	Kind     string    `json:"kind"`
	Steps    []LabStep `json:"steps"`
	Gateways []Status  `json:"gateways"`
}

// LabStep is one step of the lab.
type LabStep struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail"`
}
