package check

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/discovery/egress"
)

// PathFacts are what is known about the path to a peer.
type PathFacts struct {
	Kind   string // direct, relay or none, as api.Path has them; empty for a stock peer
	Remote string // the address in use
	Relay  string // the server in use: ours, or the one of the peer's address
	// Since is when the current path, or the lack of one, began.
	Since time.Time
	// Unanswered is since when probes on the path in use have gone unanswered; zero while they are
	// answered.
	Unanswered time.Time
	// Answered is when a probe on the path in use was last answered; zero if never, or without a
	// path.
	Answered time.Time
	// Refused is when the peer last refused a probe, authenticated, because it has heard a later start
	// with this gateway's key: the probe arrived, and its answer did.
	Refused time.Time
	// Asked is when a probe was last sent on any path to the peer.
	Asked time.Time
	RTT   time.Duration
	// MTU is the largest overlay packet in bytes that was seen to pass unfragmented on the path, 0
	// if unknown. LinkMTU is the overlay's own: what the configuration or this host's interfaces
	// allow.
	MTU, LinkMTU int
	// Traffic is what connections show about the path; nil if there were none.
	Traffic *api.Traffic
	// NAT is in front of this gateway, PeerNAT in front of the peer, according to the peer.
	NAT, PeerNAT catalogue.NAT
	// Interruptions are those that came at regular intervals.
	Interruptions Interruptions
}

// direct returns the address that the path leads to, empty if there is none or a relay is used.
func (p PathFacts) direct() string {
	if p.Kind != api.PathDirect {
		return ""
	}
	return p.Remote
}

// NameFact is about a host name among the peer's endpoints, as configured, with the port.
type NameFact struct {
	Name string
	// Err says why a name that never resolved does not; Silent says that no name server answers.
	Err    string
	Silent bool
	// Was and Now are its addresses before and after they changed at At.
	Was, Now []string
	At       time.Time
}

// Sight is an observation on the wire: where something came from, and when last.
type Sight struct {
	From string // address and port
	At   time.Time
}

// KeySight is a Sight of someone with a key.
type KeySight struct {
	Sight
	Key string // base64
}

// StampSight is a Sight of a handshake rejected for its timestamp: not later than the newest
// accepted one (WireGuard paper §5.1).
type StampSight struct {
	Sight
	Stamp, Newest time.Time
}

// Refusal is why a packet to an address was not delivered: this host did not send it, or an ICMP
// error came.
type Refusal struct {
	To     string // address and port
	Reason string // "port unreachable", "host unreachable", …
	// Here: this host says so. By is the address of whoever else does, empty if unknown.
	Here bool
	By   string
	At   time.Time
}

// Evidence is what was seen of a peer besides its answers. It explains a failure, and is ignored
// while the peer works.
type Evidence struct {
	// HeardUnanswered: authenticated probe requests from the peer arrive while ours go unanswered.
	// Probes are keyed with the preshared key, so the keys are right.
	HeardUnanswered Sight
	// Removed: the peer says, authenticated, that it has removed this gateway.
	Removed Sight
	// Initiated: handshake initiations from the peer arrive and make no session. They do not prove
	// the preshared key, so it may differ, or our responses may be lost.
	Initiated Sight
	// Unverified: handshake responses arrive from the peer's address that do not verify.
	Unverified Sight
	// OtherKey: someone at the peer's address dials with a key of no peer of ours.
	OtherKey KeySight
	// NotForUs: initiations from the peer's address are made for another public key (their mac1,
	// WireGuard paper §5.4.4, is not for us).
	NotForUs Sight
	// CameBack: our own initiations arrive from the peer's address, so that leads to this gateway.
	CameBack Sight
	// StampInPast: initiations from the peer are rejected as replays.
	StampInPast StampSight
	// Unreachable is why packets to the peer's addresses were not delivered.
	Unreachable []Refusal
	// Boots are the peer's last boot numbers, newest last and no two alike in a row; BootsAt are
	// when each was first seen in its place.
	Boots   []uint64
	BootsAt []time.Time
	// Skew is the peer's clock minus ours; 0 for none or unknown.
	Skew time.Duration
}

// Own is what is known about this gateway itself.
type Own struct {
	Name string
	catalogue.Shown
	// Networks are the addresses of this host's interfaces with their prefixes.
	Networks []netip.Prefix
	// Links are this host's network interfaces that lead outside; nil if unknown.
	Links []Link
	// STUN and TURN are the configured servers, one entry for each address. Refused is why packets
	// to them and to others were not delivered.
	STUN, TURN []Server
	Refused    []Refusal
	// Proxy is the proxy of outbound connections, host:port, empty for none; Proxied is the result
	// of the last one to each host.
	Proxy   string
	Proxied []egress.Outcome
	// Superseded is a peer's claim that a gateway with this one's key started later.
	Superseded Superseded
	// Strangers are the keys of no peer that dial this gateway, the first one first.
	Strangers []Stranger
	// Upstreams are the servers behind this gateway's services.
	Upstreams []Upstream
	Sockets   Sockets
	// TicketAlarmAt is when a ticket was last tried by a second key, zero for never, and
	// TicketAlarmOf the peer that has joined with it.
	TicketAlarmAt time.Time
	TicketAlarmOf string
	// Mapping is the port mapping on the router; nil for none.
	Mapping *Mapping
	// LAN is about LAN discovery; nil if that is off.
	LAN *LANFacts
	// Moved is the last change of the addresses that others see this gateway at.
	Moved Move
	// Filtered is how many packets this host has discarded in the last FilteredIn because its route to
	// their sender uses another interface (rp_filter).
	Filtered   uint64
	FilteredIn time.Duration
	// FilteredBefore is the same of earlier times, the newest last.
	FilteredBefore []Rate
	// Found are problems that other components found, for example in their cluster.
	Found []OwnProblem
}

// Rate is how often something happened between two times.
type Rate struct {
	Count    uint64
	From, To time.Time
}

// Superseded is the peer that last said that it has heard a later start with our key, and when.
type Superseded struct {
	By string
	At time.Time
}

// Stranger is a key of no peer that dials this gateway.
type Stranger struct {
	Fingerprint string
	From        string // address and port
	First, Last time.Time
	// Removed: an operator has removed a peer with this key.
	Removed bool
}

// Link is a network interface of this host.
type Link struct {
	Name string
	Up   bool // it is enabled and has a carrier
}

// OwnProblem is a problem of this gateway that another component found; it is shown as a failing
// own check.
type OwnProblem struct {
	// Name is the check's name, for example "service". Several problems may share it.
	Name   string
	Code   catalogue.Code
	Params catalogue.Params
	// Since is when it began; zero if that does not matter.
	Since time.Time
}

// Upstream is the server behind a service of this gateway.
type Upstream struct {
	Service string // apiServer, or the name of a named service
	Address string // host:port
	// TLS says that the server speaks TLS. ServerName and CA (PEM) verify its certificate; empty
	// means the defaults.
	TLS        bool
	ServerName string
	CA         []byte
}

// Server is a STUN or TURN server.
type Server struct {
	Name    string // as configured, host:port
	Address string // what the name resolves to; empty if it does not resolve
	Err     string // why it cannot be used; empty if it can
	// Failure classifies Err, where the fix differs: FailureTimeout and, for a relay,
	// FailureRejected and FailureCertificate.
	Failure catalogue.Failure
	// Nameless: no name server answers for its name.
	Nameless bool
	At       time.Time
	// Mapped is the address that the server last saw us at, Agreed the one that most servers see;
	// invalid if unknown.
	Mapped, Agreed netip.Addr
	// Failures is how often in a row it has not answered, each time several requests.
	Failures int
	// Unanswered is since when the current requests have gone unanswered; zero if there are none.
	Unanswered time.Time
}

// Sockets are the underlay's UDP sockets.
type Sockets struct {
	// ReceiveBuffer and SendBuffer are the sizes granted in bytes, as setsockopt counts them
	// (getsockopt returns twice as much on Linux); 0 = unknown. It is the smaller one of IPv4 and
	// IPv6.
	ReceiveBuffer, SendBuffer int
	// Drops counts the datagrams that arrived while the receive buffer was full.
	Drops uint64
	// Refused counts the sends that this host refused although it sent to the same address soon
	// after; RefusedBecause is the reason of the last one, as in Refusal.
	Refused        uint64
	RefusedBecause string
}
