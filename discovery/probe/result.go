package probe

import (
	"net/netip"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Kind is the kind of a packet that [Prober.Handle] handled.
type Kind uint8

// Kinds of results.
const (
	Drop       Kind = iota // refused: nothing was learned, and nothing may be sent unless there is a Reply
	Request                // an authenticated request: send Reply to its source, on the same path
	Response               // an authenticated answer to one of our requests
	Superseded             // authenticated answer: the peer has heard a later start with our key
	Removed                // authenticated answer: we are no longer a peer there
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case Drop:
		return "drop"
	case Request:
		return "request"
	case Response:
		return "response"
	case Superseded:
		return "superseded"
	case Removed:
		return "removed"
	}
	return "unknown kind"
}

// Reason says why a packet was dropped, for counters and logs.
type Reason string

// Reasons of a [Drop]. ReasonTwoLives means that an earlier start with the peer's key still runs.
const (
	ReasonMalformed       Reason = "malformed"       // not in the wire format
	ReasonUnauthenticated Reason = "unauthenticated" // the MAC is missing or wrong
	ReasonVersion         Reason = "version"         // another major version
	ReasonStaleBoot       Reason = "stale-boot"      // a lower boot id than seen before
	ReasonTwoLives        Reason = "two-lives"       // a previous boot id, but not seen before
	ReasonReplay          Reason = "replay"          // seen before, or too old to tell
	ReasonRemoved         Reason = "removed"         // from a former peer
	ReasonGone            Reason = "gone"            // the peer or the transaction ended meanwhile
)

// Result describes a packet that is ours.
type Result struct {
	Kind   Kind
	Reason Reason // for a Drop
	// Peer is the sender. For a Drop it is the peer whose key id or transaction was used, whoever
	// did so.
	Peer   peer.PublicKey
	PathID uint16 // for a request the sender's number, for a response that of our request
	Flags  uint8  // likewise
	TxID   stunwire.TxID
	// BootID is the sender's, for a request and a Drop for [ReasonTwoLives]; for Superseded that
	// of the later start.
	BootID uint64
	// Rebooted is whether the request is the first with a higher boot id than before: the peer
	// has restarted, and its sessions are gone.
	Rebooted bool
	// Mapped is the address from which the peer saw our request come, for a response.
	Mapped netip.AddrPort
	// Reply is the response to send, for a request and for a Drop for [ReasonTwoLives] or
	// [ReasonRemoved].
	Reply []byte
}
