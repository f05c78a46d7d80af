package ticket

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// State is where a ticket stands:
//
//	         redemption               first handshake, or deadline
//	Open ──────────────────▶ Redeemed ─────────────────────────────▶ Finished
//	  │ deadline ▶ Expired       │ peer removed                          │
//	  │ 5 failures ▶ Burned      └──────────▶ Closed ◀───────────────────┘
//
// An open or redeemed ticket has a one-time peer. A finished one keeps its own until
// the deadline, only to answer: whoever comes with the ticket then is told that it was
// used, and the inviter hears the alarm, where silence would hide a theft.
type State string

// States of a ticket.
const (
	Open     State = "open"
	Redeemed State = "redeemed"
	Finished State = "finished"
	Expired  State = "expired"
	Burned   State = "burned"
	Closed   State = "closed"
)

// Record is what the inviter keeps of a ticket: the keys derived from its seed as far
// as it needs them, never the seed.
type Record struct {
	ID ID
	// Inviter is the public key that the ticket names as ours; zero in a book older than that.
	Inviter peer.PublicKey
	// OneTime is the public key of the tunnel through which the joiner redeems, Tunnel
	// that tunnel's preshared key. Tunnel is erased when the one-time peer is.
	OneTime peer.PublicKey
	Tunnel  peer.PresharedKey
	// Reply authenticates replies. It is kept so long as the record is, to tell a
	// late reply from a forged one.
	Reply Key
	// Peer gives the lasting preshared key of a peer that joined by a reply.
	Peer Key

	// Name is what the joiner will be called here; empty takes its own name.
	Name string
	// For is the only key that may redeem, unless zero.
	For     peer.PublicKey
	Allow   []string
	Approve bool
	// Object is the UID of the cluster's object that asked for it; empty without.
	Object string

	CreatedAt time.Time
	ExpiresAt time.Time
	State     State
	Failures  int
	// EndedAt is when the ticket left Open and Redeemed.
	EndedAt time.Time

	// By is who redeemed it, from then on.
	By Redeemer
}

// Redeemer is the peer that came of a ticket.
type Redeemer struct {
	PublicKey    peer.PublicKey
	Name         string
	PresharedKey peer.PresharedKey
	Allow        []string
	Approved     bool
	At           time.Time
}

// live reports whether the ticket can still make someone a peer.
func (r Record) live() bool { return r.State == Open || r.State == Redeemed }

// answers reports whether the ticket has a one-time peer.
func (r Record) answers() bool { return r.live() || r.State == Finished && !r.Tunnel.IsZero() }

// Records is the book as it is stored. A Records that was handed over is not changed.
type Records struct {
	// Seen is the latest time that the book has seen: a clock that is set back
	// behind it takes the deadlines along.
	Seen time.Time
	List []Record
}

// clone copies the list; what records point to is never changed in place.
func (r Records) clone() Records {
	r.List = slices.Clone(r.List)
	return r
}

// find returns the record that pick accepts, or nil.
func (r Records) find(pick func(Record) bool) *Record {
	for i := range r.List {
		if pick(r.List[i]) {
			return &r.List[i]
		}
	}
	return nil
}

func byOneTime(k peer.PublicKey) func(Record) bool {
	return func(r Record) bool { return r.OneTime == k }
}

func byID(id ID) func(Record) bool { return func(r Record) bool { return r.ID == id } }
