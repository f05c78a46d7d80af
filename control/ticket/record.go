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
// An open or redeemed ticket has a one-time peer. A finished one keeps it until the deadline, only
// to answer: a later user of the ticket is told that it was used, and the inviter gets an alarm.
// Silence would hide a theft.
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

// Record is what the inviter stores of a ticket: the keys derived from its seed that it needs,
// never the seed.
type Record struct {
	ID ID
	// Inviter is the public key that the ticket has as ours; zero in an older book.
	Inviter peer.PublicKey
	// OneTime is the public key of the tunnel in which the joiner redeems, Tunnel that tunnel's
	// preshared key. Tunnel is erased when the one-time peer is.
	OneTime peer.PublicKey
	Tunnel  peer.PresharedKey
	// Reply authenticates replies. It is kept as long as the record, to distinguish a late reply
	// from a forged one.
	Reply Key
	// Peer gives the lasting preshared key of a peer that joined by a reply.
	Peer Key

	// Name is our name for the joiner; empty means its own name.
	Name string
	// For is the only key that may redeem, unless zero.
	For     peer.PublicKey
	Allow   []string
	Approve bool
	// Object is the UID of the cluster object that requested it; empty if none did.
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

// Redeemer is the peer that redeemed a ticket.
type Redeemer struct {
	PublicKey    peer.PublicKey
	Name         string
	PresharedKey peer.PresharedKey
	Allow        []string
	Approved     bool
	At           time.Time
}

// live reports whether the ticket can still make a peer.
func (r Record) live() bool { return r.State == Open || r.State == Redeemed }

// answers reports whether the ticket has a one-time peer.
func (r Record) answers() bool { return r.live() || r.State == Finished && !r.Tunnel.IsZero() }

// Records is the stored form of the book. It is immutable once passed on.
type Records struct {
	// Seen is the latest time that the book has seen: if the clock is set back behind it, the
	// deadlines move as well.
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
