package api

import "time"

// Status is a gateway's view of itself and its peers at one moment (kind: Status).
type Status struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Gateway    GatewayStatus `json:"gateway"`
	Peers      []PeerStatus  `json:"peers"`
	// Problems are current problems other than those of the peers' endpoints, errors first: this
	// gateway's own, and warnings about the paths to peers. They have no stages.
	Problems []Check `json:"problems,omitempty"`
	// Alarms are the warnings with a code since the start, once for each subject.
	Alarms []Alarm `json:"alarms,omitempty"`
}

// GatewayStatus describes the gateway that responds.
type GatewayStatus struct {
	Name       string    `json:"name"`
	PublicKey  string    `json:"publicKey"`
	Address    string    `json:"address"`
	Version    string    `json:"version"`
	ListenPort uint16    `json:"listenPort"`
	StartedAt  time.Time `json:"startedAt"`
	// ConfigUndoneAt is when the configuration is reverted unless it is confirmed.
	ConfigUndoneAt *time.Time  `json:"configUndoneAt,omitempty"`
	NAT            NAT         `json:"nat"`
	Candidates     []Candidate `json:"candidates"`
}

// NAT is the NAT's behaviour in the terms of RFC 4787.
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
	// Relay is the server whose allocation is used to try the address; empty for this gateway's own
	// socket.
	Relay      string  `json:"relay,omitempty"`
	State      string  `json:"state,omitempty"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	Reason     string  `json:"reason,omitempty"`
}

// PeerState summarizes a peering.
type PeerState string

// States of a peer.
const (
	StateConnected  PeerState = "connected"
	StateConnecting PeerState = "connecting"
	StatePending    PeerState = "pending"
	StateFailed     PeerState = "failed"
	// StateUnconfirmed is shown for a connected peer while UnconfirmedSince is set.
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
	// UnconfirmedSince is since when a connected peer has not answered. The state of its services
	// is from before then.
	UnconfirmedSince *time.Time `json:"unconfirmedSince,omitempty"`
	Stock            bool       `json:"stock,omitempty"`
	// Labels are this operator's, from the configuration or the Peer object.
	Labels  map[string]string `json:"labels,omitempty"`
	Version string            `json:"version,omitempty"`
	Allow   []string          `json:"allow"`
	// UndoneAt is when its grants and local listeners are reverted unless they are confirmed.
	UndoneAt   *time.Time  `json:"undoneAt,omitempty"`
	Offers     []string    `json:"offers"`
	Local      []Local     `json:"local"`
	Path       Path        `json:"path"`
	Candidates []Candidate `json:"candidates"`
	NextTry    *time.Time  `json:"nextTry,omitempty"`
	Identity   *Identity   `json:"identity,omitempty"`
	// User is the peer's user at this cluster's API server, to which RBAC is bound; empty if no
	// identities are issued here.
	User  string `json:"user,omitempty"`
	Flows []Flow `json:"flows"`
	// UDPFlows is the number of flows of datagrams. Flows lists the most recently used ones.
	UDPFlows            int          `json:"udpFlows,omitempty"`
	LastHandshake       *time.Time   `json:"lastHandshake,omitempty"`
	RxBytes             uint64       `json:"rxBytes"`
	TxBytes             uint64       `json:"txBytes"`
	RxBytesPerSecond    float64      `json:"rxBytesPerSecond"`
	TxBytesPerSecond    float64      `json:"txBytesPerSecond"`
	Reachability        Reachability `json:"reachability"`
	ApprovalFingerprint string       `json:"approvalFingerprint,omitempty"`
}

// Shown returns the state to show to people.
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
	// Error says why the listener could not be opened.
	Error string `json:"error,omitempty"`
	// Lost is the finding that what came to the listener last could not be carried to the service;
	// nil if it could, and for what the checks of the peer find.
	Lost *Verdict `json:"lost,omitempty"`
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
	// Relay is the server whose allocation this gateway sends from. It is empty if it sends from
	// its own socket, even to the peer's address on a relay.
	Relay      string     `json:"relay,omitempty"`
	Source     string     `json:"source,omitempty"`
	RTTSeconds float64    `json:"rttSeconds,omitempty"`
	Since      *time.Time `json:"since,omitempty"`
	// Proven is when a probe over the address in use was last answered, also before there is a
	// session. It is nil while no probe there has been answered, and for a peer that is not probed.
	Proven *time.Time `json:"proven,omitempty"`
	Reason string     `json:"reason,omitempty"`
	MTU    int        `json:"mtu,omitempty"`
	// Traffic is what TCP connections to the peer have recently shown of the path; nil if there
	// were none, or the path is short.
	Traffic *Traffic    `json:"traffic,omitempty"`
	History []PathEvent `json:"history"`
}

// What limits the sending rate.
const (
	LimitData       = "data"       // there is no more to send, or the receiver accepts no more
	LimitBandwidth  = "bandwidth"  // the path's bandwidth
	LimitCongestion = "congestion" // others share it
	LimitPolicer    = "policer"    // a rate limiter drops what exceeds its rate
)

// Traffic is what TCP connections through the tunnel have shown of the path to a peer, in the
// direction to it. They share the path and its measurements.
type Traffic struct {
	Connections int `json:"connections"`
	// LimitedBy is data, bandwidth, congestion or policer; empty while nothing is sent.
	LimitedBy string `json:"limitedBy,omitempty"`
	// BytesPerSecond is the highest recent rate at which payload was delivered; 0 is unknown.
	BytesPerSecond float64 `json:"bytesPerSecond"`
	// PolicedBytesPerSecond is what a rate limiter lets through; 0 if there seems to be none.
	PolicedBytesPerSecond float64 `json:"policedBytesPerSecond,omitempty"`
	// RTTSeconds is the current round trip, and BaseRTTSeconds the one without a queue; 0 is
	// unknown.
	RTTSeconds     float64 `json:"rttSeconds"`
	BaseRTTSeconds float64 `json:"baseRTTSeconds,omitempty"`
	// LossRatio is the share of packets that are lost at any rate, among LossSample recent packets
	// that met no queue. QueueLossRatio is the share that full queues drop.
	LossRatio      float64 `json:"lossRatio"`
	QueueLossRatio float64 `json:"queueLossRatio"`
	LossSample     int64   `json:"lossSample"`
	// InFlightBytes are sent and not acknowledged; WindowBytes is the limit.
	InFlightBytes int `json:"inFlightBytes"`
	WindowBytes   int `json:"windowBytes"`
	// IdleSeconds is the time since something was last sent.
	IdleSeconds float64 `json:"idleSeconds"`
}

// lossKnown is how many packets a loss must be measured over to be shown. 1 % of them is ten, known
// within a third.
const lossKnown = 1000

// LossKnown reports whether LossRatio and QueueLossRatio are measured over enough packets to be
// shown. A change of the path, and a queue that overflowed, restart the sample.
func (t *Traffic) LossKnown() bool { return t != nil && t.LossSample >= lossKnown }

// PathEvent is one change of a path.
type PathEvent struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Reason string    `json:"reason"`
}

// Identity is what the peer issued to this gateway for its API server.
type Identity struct {
	// User is this gateway's user there; empty if a token does not say.
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
	// acknowledged. Both are unknown for connections over short paths.
	WaitingBytes  int `json:"waitingBytes,omitempty"`
	InFlightBytes int `json:"inFlightBytes,omitempty"`
}

// Reachability is what works, in both directions: Outbound is measured here, Inbound is what the
// peer reports about reaching this gateway.
type Reachability struct {
	Outbound Targets `json:"outbound"`
	Inbound  Targets `json:"inbound"`
	// Beside is the worst of Status.Problems about the path to this peer; empty if there is none.
	Beside Outcome `json:"beside,omitempty"`
}

// On returns the verdict on one of the three endpoints in a direction.
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

// Outcome is a verdict in one word.
type Outcome string

// Outcomes. Unknown means that it could not be determined; Off that the other side does not offer
// this gateway the service.
const (
	OK      Outcome = "ok"
	Warning Outcome = "warning"
	Error   Outcome = "error"
	Unknown Outcome = "unknown"
	Off     Outcome = "off"
)

// Confidence is how certain the cause of an error or a warning is.
type Confidence string

// Confidences. Certain is based on this machine, an authenticated peer, or an attempt. Likely is
// based on what anybody can claim, or on silence that has lasted. Tentative is based on silence of
// seconds.
const (
	Certain   Confidence = "certain"
	Likely    Confidence = "likely"
	Tentative Confidence = "tentative"
)

// Verdict is the result of a check.
type Verdict struct {
	Verdict Outcome `json:"verdict"`
	// Confidence is empty if nothing is wrong, if the check depends on another one, and for reports
	// from a peer.
	Confidence Confidence `json:"confidence,omitempty"`
	Code       string     `json:"code,omitempty"`
	Stage      string     `json:"stage,omitempty"`
	// Place says where the fault is, if the code says so; otherwise it is on the path, which has
	// its own place.
	Place string `json:"place,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Steps are what to do, Fix the same as text.
	Steps Steps  `json:"steps,omitempty"`
	Fix   string `json:"fix,omitempty"`
	// Command is the one command or rule of the steps to type at this gateway, ready to be copied.
	// It is empty if the steps are a decision, offer several, or are for the other side.
	Command string `json:"command,omitempty"`
	// By is the address of the router that rejects packets, for PST0123; empty if unknown.
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
