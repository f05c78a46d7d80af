package portmap

import (
	"net/netip"
	"time"
)

// Protocol is how a router is asked.
type Protocol string

// The protocols, in the order in which they are tried.
const (
	PCP    Protocol = "PCP"
	NATPMP Protocol = "NAT-PMP"
	UPnP   Protocol = "UPnP"
)

// State is what became of the mapping.
//
//	           ┌────────────── network changed, lost, refused renewal ◀─┐
//	           ▼                                                        │
//	Waiting ─▶ Asking ─▶ Mapped ◀── STUN servers confirm ──▶ Useless ───┤
//	           ▲   │        └───────────────────────────────────────────┘
//	           │   ▼ no protocol gives one
//	           └─ Failed (asked again after 30 s, then up to 15 min)
type State string

// States of a mapping.
const (
	StateWaiting State = "waiting" // for a port or a router
	StateAsking  State = "asking"
	StateMapped  State = "mapped"  // a candidate
	StateUseless State = "useless" // the router lists it, but nobody outside can use it
	StateFailed  State = "failed"
)

// Proof says what shows that a mapping is usable from outside.
type Proof string

// Proofs, from none to the strongest.
const (
	ProofNone    Proof = ""        // no STUN server answers: the router's word alone
	ProofAddress Proof = "address" // STUN servers see us at the same address, from another port
	ProofSTUN    Proof = "stun"    // STUN servers see us at the very address and port
	ProofInbound Proof = "inbound" // a STUN server got through to it unasked, from another address
)

// Fault is why there is no mapping that others may use.
type Fault string

// Faults. None of them is known before a round of asking has ended.
const (
	FaultNone        Fault = ""
	FaultUnreachable Fault = "unreachable" // no router is known, or it answers by no protocol
	FaultRefused     Fault = "refused"     // it answers, and says no
	FaultImpossible  Fault = "impossible"  // it says what no host can have
	// FaultStale: it lists the mapping, and nothing comes through. It stays when the mapping was
	// recreated and is a candidate again, until a test gets through.
	FaultStale        Fault = "stale"
	FaultBehindNAT    Fault = "behindNAT"    // its own address is private
	FaultContradicted Fault = "contradicted" // STUN servers see another public address
)

// fault is the verdict on a mapping in the words of the status.
func (v verdict) fault() Fault {
	return map[verdict]Fault{
		impossible: FaultImpossible, dead: FaultStale, behindNAT: FaultBehindNAT, contradicted: FaultContradicted,
	}[v]
}

// Status is what a [Mapper] knows at one moment.
type Status struct {
	State State
	// Router is whom it asks; invalid when that is unknown.
	Router netip.Addr
	// Protocol is what made the mapping, or is being tried; empty in other states.
	Protocol Protocol
	// Internal and External are the two ends of the mapping; invalid without one.
	Internal, External netip.AddrPort
	// Made is when the mapping was made (again), ExpiresAt when it ends unless renewed, and
	// Lifetime what the router last granted.
	Made, ExpiresAt time.Time
	Lifetime        time.Duration
	Proof           Proof
	// Err says why there is no usable mapping, or why the last renewal failed, and Fault what
	// kind of reason that is.
	Err   string
	Fault Fault
	// RetryAt is when the router is asked again after a failure.
	RetryAt time.Time
}

// Candidate is the external address when others may use it.
func (s Status) Candidate() (netip.AddrPort, bool) {
	return s.External, s.State == StateMapped && s.External.IsValid()
}

// Inbound is whether strangers get through to the mapped port.
type Inbound uint8

// What a test can find.
const (
	InboundUnknown Inbound = iota
	InboundOpen
	InboundShut
)

// Observation is what the world outside sees of the gateway's own socket.
type Observation struct {
	// Public are the addresses that STUN servers see it at.
	Public []netip.AddrPort
	// Inbound is whether a STUN server's other address got through to it (RFC 5780), as
	// tested while the mapping was there that was made at Tested ([Status].Made).
	Inbound Inbound
	Tested  time.Time
}
