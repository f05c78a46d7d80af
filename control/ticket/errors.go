package ticket

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a text. Each has its own message because each has its own remedy; returned errors wrap
// one of these with details.
var (
	// ErrNotTicket: the text does not start like a ticket or reply.
	ErrNotTicket = errors.New("not a postern ticket (a ticket begins with postern1)")
	// ErrTruncated: it is shorter than it says.
	ErrTruncated = errors.New("a part of the ticket is missing; copy the whole line")
	// ErrDamaged: characters were changed, lost or added.
	ErrDamaged = errors.New("the ticket is damaged; copy it again, character by character")
	// ErrNewerVersion: a later version made it.
	ErrNewerVersion = errors.New("the ticket was made by a newer postern; upgrade this one")
	// ErrIsReply: a reply was given where a ticket is wanted.
	ErrIsReply = errors.New("this is a reply, not a ticket; at the gateway that made the ticket run `postern accept` with it")
	// ErrIsTicket: a ticket was given where a reply is wanted.
	ErrIsTicket = errors.New("this is a ticket, not a reply; at the other gateway run `postern join` with it")
)

// Reasons for refusing a redemption.
var (
	// ErrUnknown: no ticket here has that key or id.
	ErrUnknown = errors.New("no such ticket here: it was made by another gateway, or ended long ago")
	// ErrExpired: its time ran out; errors.As finds an [*ExpiredError].
	ErrExpired = errors.New("the ticket has expired")
	// ErrAlreadyUsed: another key redeemed it first.
	ErrAlreadyUsed = errors.New("the ticket was already used by another gateway")
	// ErrJoined: the same key redeemed it and has connected; nothing is left to do.
	ErrJoined = errors.New("the ticket was already used, with this key: the peering exists, see `postern status`")
	// ErrClosed: the peer that joined with it was removed.
	ErrClosed = errors.New("the peer that joined with this ticket was removed; make a new ticket with `postern invite`")
	// ErrBurned: too many redemptions failed.
	ErrBurned = errors.New("the ticket was given up after too many failed redemptions; make a new one with `postern invite`")
	// ErrWrongKey: the ticket is bound to another public key.
	ErrWrongKey = errors.New("the ticket is bound to another public key (`invite --for`)")
	// ErrNotGranted: the joiner asked for more than the ticket grants.
	ErrNotGranted = errors.New("asks for a service that the ticket does not grant")
	// ErrName: the joiner's name is no name or belongs to another peer.
	ErrName = errors.New("the name cannot be used")
	// ErrProof: the joiner does not hold the key that it claims.
	ErrProof = errors.New("nothing proves that the joiner holds the key that it gives")
	// ErrNoProof: the joiner gave no proof. It is an ErrProof.
	ErrNoProof = fmt.Errorf("%w: the joining gateway is older than this one; upgrade it, then join again with the same ticket", ErrProof)
	// ErrRekeyed: the inviter has another key than when it made the ticket.
	ErrRekeyed = errors.New("the ticket names a key that the inviter no longer has; make a new one with `postern invite`")
	// ErrKeyTaken: the joiner's key is already in use here.
	ErrKeyTaken = errors.New("the joiner's key is in use there")
	// ErrRequest: the request is invalid.
	ErrRequest = errors.New("malformed request")
	// ErrForged: a reply's signature does not match.
	ErrForged = errors.New("the reply was not made with the ticket that it names; it is forged or damaged")
	// ErrTooMany: the book is full.
	ErrTooMany = fmt.Errorf("%d tickets are open, which is the limit; wait until some expire", MaxOpen)
	// ErrStorage: the change could not be stored and was not made.
	ErrStorage = errors.New("the ticket book could not be stored")
)

// ExpiredError says when a ticket expired. It matches ErrExpired.
type ExpiredError struct {
	At time.Time
	// Here is the time by this machine's clock, if that decided; zero if it was the inviter's. A new
	// ticket would not help against a wrong clock.
	Here time.Time
}

// Error returns the message for people.
func (e *ExpiredError) Error() string {
	text := "the ticket expired at " + e.At.UTC().Format(time.RFC3339)
	if !e.Here.IsZero() {
		text += fmt.Sprintf(", and the clock here shows %s: if that is right", e.Here.UTC().Format(time.RFC3339))
		return text + ", make a new one with `postern invite`"
	}
	return text + "; make a new one with `postern invite`"
}

// Is matches ErrExpired.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// NameTakenError says that another key has the name. It matches ErrName.
type NameTakenError struct {
	Name string
	// Fixed: the inviter chose the name, so the joiner cannot.
	Fixed bool
}

// Error returns the message for people.
func (e *NameTakenError) Error() string {
	if e.Fixed {
		return fmt.Sprintf("the inviter named the joiner %q, but another peer there has that name; it must be removed (`postern peer remove %s`) or the invitation made with another --name", e.Name, e.Name)
	}
	return fmt.Sprintf("the name %q belongs to another peer there; the inviter can choose another for you: `postern invite --name NAME`", e.Name)
}

// Is matches ErrName.
func (e *NameTakenError) Is(target error) bool { return target == ErrName }

// KeyTakenError says that the joiner's key is already in use. Its message is for the joiner; Holder
// and Hint are only for the inviter's operator. It matches ErrKeyTaken.
type KeyTakenError struct {
	// Peer: it is a peer's. Replaced: it is one that the peer has replaced.
	Peer, Replaced bool
	Holder, Hint   string
}

// Error returns the message for people.
func (e *KeyTakenError) Error() string {
	if e.Replaced {
		return "this key is a former one of a peer there: have that peer removed there first (`postern peer remove`), or restore a state of this gateway that has the current key"
	}
	if e.Peer {
		return "this key is a peer there already: ask for `postern peer allow` there, or to have it removed first (`postern peer remove`)"
	}
	return "this key cannot be a peer's there: join with a gateway that has a key of its own"
}

// Is matches ErrKeyTaken.
func (e *KeyTakenError) Is(target error) bool { return target == ErrKeyTaken }
