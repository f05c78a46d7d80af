package check

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/discovery/egress"
)

// PathFacts are what is known of the way to a peer.
type PathFacts struct {
	Kind   string // direct, relay or none, as api.Path has them; empty for a stock peer
	Remote string // the address in use
	Relay  string // the server in use: ours, or the one that the peer's address is on
	// Since is when the path in use, or none, came to be so.
	Since time.Time
	// Unanswered is since when probes over the path in use have no answer; zero while they do.
	Unanswered time.Time
	RTT        time.Duration
	// MTU is the largest overlay packet in bytes that was seen to cross the path whole,
	// 0 where that is not known. LinkMTU is the overlay's own: what the configuration or
	// the interfaces of this machine allow.
	MTU, LinkMTU int
	// Traffic is what connections have shown of the path; nil if there were none.
	Traffic *api.Traffic
	// NAT is in front of this gateway, PeerNAT in front of the peer, as it says.
	NAT, PeerNAT catalogue.NAT
}

// NameFact is about a host name among the peer's endpoints, as configured, with the port.
type NameFact struct {
	Name string
	// Err says why the name does not resolve, of one that never did; Silent, that no name server
	// answers.
	Err    string
	Silent bool
	// Was and Now are its addresses before and after they changed, At is when.
	Was, Now []string
	At       time.Time
}

// Sight is something that was seen on the wire: where it came from, and when last.
type Sight struct {
	From string // address and port
	At   time.Time
}

// KeySight is a Sight of somebody with a key.
type KeySight struct {
	Sight
	Key string // base64
}

// StampSight is a Sight of a handshake that is refused for its timestamp: not later than
// the newest that was accepted (WireGuard paper §5.1).
type StampSight struct {
	Sight
	Stamp, Newest time.Time
}

// Refusal is why what was sent to an address did not get there: this machine did not send it,
// or an ICMP error came.
type Refusal struct {
	To     string // address and port
	Reason string // "port unreachable", "host unreachable", …
	// Here: this machine says so. By is the address of who else does, empty if that is not known.
	Here bool
	By   string
	At   time.Time
}

// Evidence is what was seen of a peer besides its answers. It explains a failure; while
// the peer works it is not looked at.
type Evidence struct {
	// HeardUnanswered: authenticated probe requests of the peer arrive while ours get no
	// answer. Probes are keyed with the preshared key, so the keys are right.
	HeardUnanswered Sight
	// Removed: the peer says, authenticated, that this gateway is none of its peers.
	Removed Sight
	// Initiated: handshake initiations of the peer arrive and make no session. They do not
	// show the preshared key, so it may differ, or our responses may be lost.
	Initiated Sight
	// Unverified: handshake responses arrive from the peer's address that do not verify.
	Unverified Sight
	// OtherKey: from the peer's address somebody dials with a key that none of our peers
	// has.
	OtherKey KeySight
	// NotForUs: from the peer's address come initiations made for another public key than
	// ours (their mac1, WireGuard paper §5.4.4, is not for us).
	NotForUs Sight
	// StampInPast: initiations of the peer are refused as replays.
	StampInPast StampSight
	// Unreachable is why what was sent to the peer's addresses did not arrive.
	Unreachable []Refusal
	// Boots are the last boot ids of the peer, newest last and no two alike in a row;
	// BootsAt are when each was first seen in its place.
	Boots   []uint64
	BootsAt []time.Time
	// Skew is the peer's clock minus ours; 0 is none, or not known.
	Skew time.Duration
}

// Own is what is known of this gateway by itself.
type Own struct {
	Name string
	catalogue.Shown
	// Networks are the addresses of this machine's interfaces with their prefixes.
	Networks []netip.Prefix
	// Links are this machine's network interfaces that lead out; nil where that is not known.
	Links []Link
	// STUN and TURN are the configured servers, one entry for each address, and Refused is why
	// what was sent to them and to others did not arrive.
	STUN, TURN []Server
	Refused    []Refusal
	// Proxy is what connections to the outside take, host:port, empty without one; Proxied is
	// what came of the last to each host.
	Proxy   string
	Proxied []egress.Outcome
	// Superseded is what a peer says of a later start of a gateway with this one's key.
	Superseded Superseded
	// Upstreams are the servers behind what this gateway offers.
	Upstreams []Upstream
	Sockets   Sockets
	// TicketAlarmAt is when a ticket was last tried by a second key, zero for never, and TicketAlarmOf
	// the peer that has joined with it.
	TicketAlarmAt time.Time
	TicketAlarmOf string
	// Mapping is the port that the router is asked for; nil when none is.
	Mapping *Mapping
	// LAN is about finding gateways on the local network; nil when that is off.
	LAN *LANFacts
	// Found are problems that others than this package found, in their cluster for example.
	Found []OwnProblem
}

// Superseded is the peer that said last that it has heard a later start with our key, and when.
type Superseded struct {
	By string
	At time.Time
}

// Link is a network interface of this machine.
type Link struct {
	Name string
	Up   bool // it is switched on, and has a carrier
}

// OwnProblem is something that is wrong with this gateway, found elsewhere: it is shown as
// an own check that fails.
type OwnProblem struct {
	// Name is the check's, "service" for example. Several problems may have one name.
	Name   string
	Code   catalogue.Code
	Params catalogue.Params
	// Since is when it began; zero where that does not matter.
	Since time.Time
}

// Upstream is the server behind a service that this gateway offers.
type Upstream struct {
	Service string // apiServer, or the name of a named service
	Address string // host:port
	// TLS says that the server speaks it: ServerName and CA (PEM) are what its certificate
	// is held against, empty for the defaults.
	TLS        bool
	ServerName string
	CA         []byte
}

// Server is a STUN or TURN server.
type Server struct {
	Name    string // as configured, host:port
	Address string // what the name stands for; empty when it does not resolve
	Err     string // why it cannot be used; empty when it can
	// Failure is what Err is about, as far as a fix differs: FailureTimeout, and of a relay
	// FailureRejected and FailureCertificate.
	Failure catalogue.Failure
	// Nameless: no name server answers for its name.
	Nameless bool
	At       time.Time
	// Mapped is the address that the server last saw us at, Agreed the one that most servers do;
	// invalid where that is not known.
	Mapped, Agreed netip.Addr
	// Failures is how often in a row it has not answered, each time to several requests.
	Failures int
	// Unanswered is since when it is being asked without an answer; zero while it is not.
	Unanswered time.Time
}

// Sockets are the underlay's UDP sockets.
type Sockets struct {
	// ReceiveBuffer and SendBuffer are what was granted in bytes, by the measure of
	// setsockopt (getsockopt tells twice as much on Linux); 0 = not known. The smaller of
	// IPv4's and IPv6's counts.
	ReceiveBuffer, SendBuffer int
	// Drops counts the datagrams that arrived while the receive buffer was full.
	Drops uint64
}
