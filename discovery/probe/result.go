package probe

import (
	"net/netip"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Kind is what [Prober.Handle] made of a packet.
type Kind uint8

// Kinds of results.
const (
	Drop       Kind = iota // refused: nothing was learned, and nothing may be sent unless there is a Reply
	Request                // an authenticated request: send Reply to where it came from, the way it came
	Response               // an authenticated answer to a request of ours
	Superseded             // the authenticated answer that the peer has heard a later start of our key
	Removed                // the authenticated answer that we are no peer there any more
)

// String names the kind.
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

// Reasons of a [Drop].
const (
	ReasonMalformed       Reason = "malformed"       // not of the wire format
	ReasonUnauthenticated Reason = "unauthenticated" // the MAC is missing or wrong
	ReasonVersion         Reason = "version"         // of another major version
	ReasonStaleBoot       Reason = "stale-boot"      // a lower boot id than seen before
	ReasonTwoLives        Reason = "two-lives"       // of the boot id before, but new: someone runs on with the peer's key
	ReasonReplay          Reason = "replay"          // seen before, or too old to tell
	ReasonRemoved         Reason = "removed"         // of a gateway that was a peer
	ReasonGone            Reason = "gone"            // the peer or the transaction ended meanwhile
)

// Result is what a packet that is ours says.
type Result struct {
	Kind   Kind
	Reason Reason // of a Drop
	// Peer is the peer that the packet is from. Of a Drop it is whose key id or
	// transaction was used, whoever did so.
	Peer   peer.PublicKey
	PathID uint16 // of a request: the sender's number; of a response: that of our request
	Flags  uint8  // likewise
	TxID   stunwire.TxID
	// BootID is the sender's, of a request and of a Drop for [ReasonTwoLives]; of a
	// Superseded that of the later start.
	BootID uint64
	// Rebooted says that the request is the first with a higher boot id than before:
	// the peer has restarted, and its sessions are gone.
	Rebooted bool
	// Mapped is the address that the peer saw our request come from, of a response.
	Mapped netip.AddrPort
	// Reply is the response to send, of a request and of a Drop for [ReasonTwoLives] or
	// [ReasonRemoved].
	Reply []byte
}
