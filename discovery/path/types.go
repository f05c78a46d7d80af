package path

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Options of a [Machine].
type Options struct {
	// Low says that our own public key sorts before the peer's. It breaks ties: the low
	// side proposes to punch first and wins when both propose.
	Low bool
	// Boot is our own boot id, which grows with every start. The peer orders our
	// messages by it.
	Boot uint64
	// Keepalive is how often an idle path carries one exchange: the default of 20 s, which is
	// also 0, within ±15 % (23 s ± 10 % over IPv6); any other value is not exceeded, but by a
	// round trip.
	Keepalive time.Duration
	// OverlayMTU is that of our own tunnel, in bytes: the largest packets that it sends. On a
	// direct path sizes are looked for up to that, and up to 1420 where it is less, or 0.
	OverlayMTU int
	// Searches has the machine wait for its turn before it asks the ports of a relay; nil =
	// it waits for nobody.
	Searches *Searches
	// Epoch, unless it is zero, has the probes of idle paths fall on whole half seconds after
	// it, at most that much before their time: the machines of many peers then wake the
	// process together, not one after the other. With a keepalive of less than 5 s they do not.
	Epoch time.Time
	// Rand spreads timers; nil = seeded by the system.
	Rand *rand.Rand
}

// Local is what our own side has to offer.
type Local struct {
	// Relays are the allocations that work at present.
	Relays []Relay
	// Hosts are the addresses of the host's interfaces.
	Hosts []netip.Addr
	// NAT is what is known of the NAT in front of the gateway.
	NAT NAT
	// Candidates are what is announced to the peer.
	Candidates []Candidate
}

// Relay is an allocation on a TURN server.
type Relay struct {
	Via    string         // as in [peer.Path], unique in the process' life
	Addr   netip.AddrPort // the relayed address
	Server string         // for people
}

// NAT behaviour in the words of RFC 4787. Empty means unknown.
type NAT struct {
	// Mapping is none, endpoint-independent, address-dependent,
	// address-and-port-dependent, endpoint-dependent or unknown.
	Mapping string `json:"mapping,omitempty" max:"64"`
	// Filtering is endpoint-independent, address-dependent, address-and-port-dependent
	// or unknown.
	Filtering string `json:"filtering,omitempty" max:"64"`
	// Strays says what the NAT does with unsolicited datagrams: "drops" them, or
	// "answers" them and so can be poisoned; or unknown.
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

// MaxCandidates is how many candidates are told of a machine, and looked at in a message: more than
// one keeps of all kinds. Those that come after them, of a peer that tells more, are passed over.
const MaxCandidates = 128

// Message is what two machines tell each other in-band. Every message holds the whole
// state of its sender, so that a lost one is made good by the next. The tags max bound what is
// taken of one (package bounded of control).
type Message struct {
	Version    string      `json:"version" max:"64"`
	Boot       uint64      `json:"boot"`
	Seq        uint64      `json:"seq"`                   // grows with every message of one boot
	Candidates []Candidate `json:"candidates" max:"8192"` // as many as a document has values
	NAT        NAT         `json:"nat"`
	// MTU is the overlay MTU of the sender's selected path, 0 = not known. A smaller one
	// than before has the receiver measure its own direction again.
	MTU   int    `json:"mtu,omitempty" max:"65535"`
	Punch *Punch `json:"punch,omitempty"`
}

// Punch is a step of the protocol that opens two NATs in order. See punch.go.
type Punch struct {
	Session uint32 `json:"session"` // chosen by the proposer
	Step    Step   `json:"step" max:"64"`
	Attempt int    `json:"attempt" max:"2147483647"` // from 1
	// Opened says in a proposal that the proposer's NAT is open already.
	Opened bool `json:"opened,omitempty"`
	// From are the addresses that the sender's packets are expected to come from.
	From []netip.AddrPort `json:"from,omitempty" max:"64x64"`
	// WaitMillis asks in a refusal for that many milliseconds of silence first.
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

// Probe is a probe to be sent now.
type Probe struct {
	ID           uint64 // for [Machine.Sent]; 0 = it asks a port of a relay, and nobody keeps account of it
	Path         peer.Path
	TTL          int // 0 = the system's
	Size         int // pad to so many bytes of UDP payload; 0 = no padding
	DontFragment bool
	PathID       uint16
	Flags        uint8
}

// FlagDeaf in a probe says that its sender has no answer to what its tunnel sends over
// this path, and has left it though probes pass.
const FlagDeaf uint8 = 1

// Routing is where the tunnel sends.
type Routing struct {
	// Initiate are the paths that handshake initiations go to, at most 16, the likeliest
	// first.
	Initiate []peer.Path
	// Selected is where everything else goes; the zero path when none is known to work.
	Selected peer.Path
	// MTU is the largest overlay packet in bytes that crosses the selected path whole;
	// 0 = not known (yet).
	MTU int
}

// Actions are what is to be done now.
type Actions struct {
	Probes    []Probe
	Routing   *Routing // non-nil when it changed
	Handshake bool     // start a new handshake now
	// CheckRelays asks whether our own allocations are still there: a relayed path is in
	// doubt.
	CheckRelays bool
	Messages    []Message    // to be delivered to the peer's machine in-band, in order
	Permit      []netip.Addr // non-nil when changed: who our allocations must let in
	Notes       []Note       // what was added to the history
}

// EventRestarted is the event of a note that the peer was restarted.
const EventRestarted = "the peer was restarted"

// Note is a change, for people.
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

// Snapshot is what is known of the way to the peer.
type Snapshot struct {
	Selected   peer.Path
	Kind       string // one of the Kind constants
	Source     string // of the selected path's remote address
	RTT        time.Duration
	Since      time.Time // when the selected path, or none, came to be so
	Reason     string    // why that path, or why none
	MTU        int       // overlay bytes, 0 = not known
	Candidates []PairStatus
	History    []Note         // at most 32, the latest last
	RelayLost  *RelayLost     // why there is no path, when it is that; nil = it is not
	NextTry    time.Time      // of a path that does not work at present; zero = none is planned
	Proven     time.Time      // the last own round trip, or handshake
	Heard      time.Time      // the last authenticated sign of the peer: Proven, or a probe of its own
	Unanswered time.Time      // since when probes over the selected path are not answered; zero = they are
	Probing    bool           // the peer has answered a probe: it knows them
	Mapped     netip.AddrPort // our own address as the peer sees it on the selected path
	Trips      Trips          // so far, of all paths that were selected
}

// PairStatus is what is known of one pair.
type PairStatus struct {
	Path   peer.Path
	Source string
	State  State
	RTT    time.Duration // 0 = not known
	Reason string        // why it is in this state
}
