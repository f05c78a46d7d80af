package path

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Options configure a [Machine].
type Options struct {
	// Low says that our own public key sorts before the peer's. It breaks ties: the low side
	// proposes punching first, and wins if both do.
	Low bool
	// Boot is our own boot number, which grows with every start. The peer orders our messages by
	// it.
	Boot uint64
	// Keepalive is how often an idle path carries one exchange. The default, also for 0, is 20 s ±
	// 15 % (23 s ± 10 % over IPv6). Any other value is the maximum, plus a round trip.
	Keepalive time.Duration
	// OverlayMTU is our own tunnel's MTU in bytes, its largest packet. On a direct path sizes up to
	// that are tried, and at least up to 1420.
	OverlayMTU int
	// Searches makes the machine wait for its turn before it probes the ports of a relay; nil = no
	// waiting.
	Searches *Searches
	// Epoch, if not zero, aligns the probes of idle paths to whole half seconds after it, at most
	// that much early. The machines of many peers then wake the process together, not one after the
	// other. It is ignored with a keepalive of less than 5 s.
	Epoch time.Time
	// Rand spreads timers; nil = seeded by the system.
	Rand *rand.Rand
}

// Local is what our own side offers.
type Local struct {
	// Relays are the working allocations.
	Relays []Relay
	// Hosts are the addresses of the host's interfaces.
	Hosts []netip.Addr
	// NAT is what is known about the NAT in front of the gateway.
	NAT NAT
	// Candidates are announced to the peer.
	Candidates []Candidate
}

// Relay is an allocation on a TURN server.
type Relay struct {
	Via    string         // as in [peer.Path], unique for the life of the process
	Addr   netip.AddrPort // the relayed address
	Server string         // for display
}

// NAT behaviour in RFC 4787 terms. Empty means unknown.
type NAT struct {
	// Mapping is none, endpoint-independent, address-dependent,
	// address-and-port-dependent, endpoint-dependent or unknown.
	Mapping string `json:"mapping,omitempty" max:"64"`
	// Filtering is endpoint-independent, address-dependent, address-and-port-dependent
	// or unknown.
	Filtering string `json:"filtering,omitempty" max:"64"`
	// Strays says what the NAT does with unsolicited datagrams: "drops" them, or "answers" them and
	// so can be poisoned; or unknown.
	Strays string `json:"strays,omitempty" max:"64"`
}

// What a NAT does with unsolicited datagrams.
const (
	StraysDropped  = "drops"
	StraysAnswered = "answers"
)

// Candidate is an address at which a gateway may be reached.
type Candidate struct {
	Addr   netip.AddrPort `json:"address" max:"64"`
	Source string         `json:"source" max:"64"` // one of the Source constants
}

// MessageVersion is the version of [Message]: major.minor. Messages of another major
// version are ignored.
const MessageVersion = "1.0"

// MaxCandidates is how many candidates a message contains, and how many are read from one: more
// than a machine keeps of all kinds. The rest are ignored.
const MaxCandidates = 128

// Message is what two machines send each other in-band. Every message holds the sender's whole
// state, so that the next one makes up for a lost one. The max tags bound what is accepted (package
// bounded of control).
type Message struct {
	Version    string      `json:"version" max:"64"`
	Boot       uint64      `json:"boot"`
	Seq        uint64      `json:"seq"`                   // grows with every message of a boot
	Candidates []Candidate `json:"candidates" max:"8192"` // as many as a document has values
	NAT        NAT         `json:"nat"`
	// MTU is the overlay MTU of the sender's selected path, 0 = unknown. If it shrinks, the
	// receiver measures its own direction again.
	MTU   int    `json:"mtu,omitempty" max:"65535"`
	Punch *Punch `json:"punch,omitempty"`
}

// Punch is a step of the protocol that opens two NATs in order. See punch.go.
type Punch struct {
	Session uint32 `json:"session"` // chosen by the proposer
	Step    Step   `json:"step" max:"64"`
	Attempt int    `json:"attempt" max:"2147483647"` // from 1
	// Opened says in a proposal that the proposer's NAT is already open.
	Opened bool `json:"opened,omitempty"`
	// From are the addresses that the sender's packets are expected to come from.
	From []netip.AddrPort `json:"from,omitempty" max:"64x64"`
	// WaitMillis asks, in a refusal, for that many milliseconds of silence first.
	WaitMillis int64 `json:"waitMillis,omitempty" max:"2147483647"`
}

// Step is a step of punching.
type Step string

// Steps of punching.
const (
	StepPropose Step = "propose"
	StepOpened  Step = "opened"
	StepGo      Step = "go"
	StepWait    Step = "wait"
)

// Probe is a probe to send now.
type Probe struct {
	ID           uint64 // for [Machine.Sent]; 0 = it probes a relay's port and is not tracked
	Path         peer.Path
	TTL          int // 0 = the system's
	Size         int // pad to this many bytes of UDP payload; 0 = no padding
	DontFragment bool
	PathID       uint16
	Flags        uint8
}

// FlagDeaf in a probe says that its sender gets no answer to what its tunnel sends on this path,
// and has left it although probes pass.
const FlagDeaf uint8 = 1

// Routing is where the tunnel sends.
type Routing struct {
	// Initiate are the paths for handshake initiations, at most [peer.MaxPaths], likeliest first.
	Initiate []peer.Path
	// Selected is the path for everything else; zero if none is known to work.
	Selected peer.Path
	// MTU is the largest overlay packet in bytes that passes unfragmented on the selected path; 0 =
	// unknown (yet).
	MTU int
}

// Actions are what to do now.
type Actions struct {
	Probes    []Probe
	Routing   *Routing // non-nil if it changed
	Handshake bool     // start a new handshake now
	// CheckRelays asks whether our own allocations still exist: a relayed path is in doubt.
	CheckRelays bool
	Messages    []Message    // to deliver to the peer's machine in-band, in order
	Permit      []netip.Addr // non-nil if changed: whom our allocations must let in
	Notes       []Note       // additions to the history
}

// EventRestarted is the event of a note that the peer was restarted.
const EventRestarted = "the peer was restarted"

// Note is a change, for display.
type Note struct {
	At     time.Time
	Event  string // what changed: "203.0.113.8:51820 selected"
	Reason string
}

// Kinds of path.
const (
	KindDirect = "direct"
	KindRelay  = "relay"
	KindNone   = "none"
)

// Snapshot is what is known about the path to the peer.
type Snapshot struct {
	Selected   peer.Path
	Kind       string // one of the Kind constants
	Source     string // of the selected path's remote address
	RTT        time.Duration
	Since      time.Time // when the current path, or the lack of one, began
	Reason     string    // why that path, or why none
	MTU        int       // overlay bytes, 0 = unknown
	Candidates []PairStatus
	History    []Note         // at most 32, the latest last
	RelayLost  *RelayLost     // set if that is why there is no path, else nil
	NextTry    time.Time      // of a path that does not currently work; zero = none is planned
	Proven     time.Time      // our last round trip, or handshake
	Heard      time.Time      // the last authenticated packet from the peer: Proven, or its own probe
	Answered   time.Time      // when a probe on the selected path was last answered; zero = never
	Unanswered time.Time      // since when probes on the selected path are unanswered; zero = they are answered
	Probing    bool           // the peer has answered a probe, so it supports them
	Mapped     netip.AddrPort // our own address as the peer sees it on the selected path
	Trips      Trips          // so far, on all selected paths
	// Interruptions are those that come at regular intervals.
	Interruptions Interruptions
}

// PairStatus is what is known about one pair.
type PairStatus struct {
	Path   peer.Path
	Source string
	State  State
	RTT    time.Duration // 0 = unknown
	Reason string        // why it is in this state
	Asked  time.Time     // when the last probe was sent
}
