package ticket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Grant is what a redeemed ticket grants: the peer that the inviter is to add. The same joiner may
// be granted the same again, so adding it must be idempotent.
type Grant struct {
	Ticket ID
	// Name is our name for the joiner; Chosen says that the inviter gave it.
	Name         string
	Chosen       bool
	PublicKey    peer.PublicKey
	PresharedKey peer.PresharedKey
	// Allow is what the joiner may reach here, Offers what we may reach there.
	Allow, Offers []string
	Candidates    []Candidate
	// Pending: an operator has yet to confirm the joiner's key.
	Pending bool
}

// Redeem answers a joiner in the one-time tunnel. Redemption is compare-and-set on the joiner's
// key: the first wins, the same key gets the same answer again until its first handshake, and
// another gets an [ErrAlreadyUsed] and causes an alarm. A joiner has to prove that it holds its
// key. It certainly has the ticket, so refusals that are its own fault count: MaxFailures of them
// burn an open ticket. Refusals are among the errors of this package.
func (b *Book) Redeem(now time.Time, oneTime peer.PublicKey, q Request) (Grant, error) {
	psk, err := peer.NewPresharedKey()
	if err != nil {
		return Grant{}, err
	}
	return b.settle(now, InBand, byOneTime(oneTime), q, func(r *Record) (peer.PresharedKey, error) {
		switch r.State {
		case Open:
			return psk, nil
		case Finished:
			// The joiner has its answer, since it has completed a handshake. Another request may be
			// from a thief that claims its key.
			return peer.PresharedKey{}, ErrJoined
		}
		return r.By.PresharedKey, nil
	})
}

// Accept handles a joiner's reply to an open ticket of this book, like Redeem handles a request.
// The permanent preshared key is derived from the ticket, since the joiner gets no answer; it
// replaces one that Redeem gave the same joiner in an answer that never arrived.
func (b *Book) Accept(now time.Time, reply Reply) (Grant, error) {
	r := b.records.Load().find(byID(reply.Ticket))
	if r != nil && !reply.authentic(r.Reply) {
		// It proves no knowledge of the ticket, so it does not count as a failed redemption:
		// otherwise a stranger could burn tickets.
		b.refuse(reply.Ticket, reply.PublicKey, reply.Name, ErrForged)
		return Grant{}, ErrForged
	}
	return b.settle(now, ByReply, byID(reply.Ticket), reply.Request, func(r *Record) (peer.PresharedKey, error) {
		if r.State == Finished {
			return r.By.PresharedKey, nil // in use: the two have connected
		}
		return r.Peer.PeerKey(b.self, reply.PublicKey)
	})
}

// settle decides on a request, stores the decision and audits it.
func (b *Book) settle(now time.Time, way Way, pick func(Record) bool, q Request, psk func(*Record) (peer.PresharedKey, error)) (Grant, error) {
	var (
		grant  Grant
		seen   Record // as the decision left it
		again  bool
		burned bool
	)
	err := b.change(now, func(e *edit) error {
		r := e.find(pick)
		if r == nil {
			return ErrUnknown
		}
		defer func() { seen = *r }()
		again = r.State != Open
		err := b.decide(e, way, r, q, psk)
		if err == nil {
			grant = r.grant(q)
			return nil
		}
		if r.State == Open && isJoiners(err) {
			e.dirty = true
			if r.Failures++; r.Failures >= MaxFailures {
				e.end(r, Burned)
				burned = true
			}
		}
		return err
	})
	if err != nil {
		b.refuse(seen.ID, q.PublicKey, q.Name, err)
		if burned && !errors.Is(err, ErrStorage) {
			b.o.Audit.Record(context.Background(), audit.Burn, audit.Ticket(seen.ID.String()), audit.Reason(ErrBurned.Error()))
		}
		if thief := errors.Is(err, ErrProof) && !errors.Is(err, ErrNoProof) && again; thief || errors.Is(err, ErrAlreadyUsed) {
			b.alarm(now, way, seen, q)
		}
		return Grant{}, err
	}
	if !again {
		event := audit.Redeem
		if way == ByReply {
			event = audit.Accept
		}
		b.o.Audit.Record(context.Background(), event, audit.Ticket(seen.ID.String()), audit.Peer(grant.Name),
			audit.PublicKey(grant.PublicKey), audit.Services(grant.Allow))
	}
	return grant, nil
}

// errInternal marks failures of this gateway itself.
var errInternal = errors.New("internal error")

// isJoiners reports whether a refusal is the joiner's fault, and counts. An older joiner should
// retry after an upgrade; a duplicate name, or a key that the inviter no longer has, is for the
// inviter to fix.
func isJoiners(err error) bool {
	if taken, ok := errors.AsType[*NameTakenError](err); ok && taken.Fixed {
		return false
	}
	return !errors.Is(err, errInternal) && !errors.Is(err, ErrNoProof) && !errors.Is(err, ErrRekeyed)
}

// decide is the compare-and-set: it leaves r redeemed by q's key or returns why not.
func (b *Book) decide(e *edit, way Way, r *Record, q Request, psk func(*Record) (peer.PresharedKey, error)) error {
	switch {
	case r.State == Expired:
		return &ExpiredError{At: r.ExpiresAt}
	case r.State == Burned:
		return ErrBurned
	case r.State != Open && r.By.PublicKey != q.PublicKey:
		return ErrAlreadyUsed
	}
	if err := q.check(); err != nil {
		return err
	}
	if !r.Inviter.IsZero() && r.Inviter != b.self {
		return ErrRekeyed // and the proof is for the old key
	}
	if err := q.checkProof(way, r.ID, b.o.Key); err != nil {
		return err
	}
	switch r.State {
	case Closed:
		return ErrClosed
	case Open:
		if err := b.mayRedeem(e, r, q); err != nil {
			return err
		}
	}
	key, err := psk(r)
	if errors.Is(err, ErrJoined) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errInternal, err)
	}
	if r.State != Open {
		if !r.By.PresharedKey.Equal(key) {
			r.By.PresharedKey = key
			e.dirty = true
		}
		return nil
	}
	allow := r.Allow
	if len(q.Wants) > 0 {
		allow = slices.Clone(q.Wants)
	}
	name := r.Name
	if name == "" {
		name = q.Name
	}
	r.State = Redeemed
	r.By = Redeemer{PublicKey: q.PublicKey, Name: name, PresharedKey: key, Allow: allow, Approved: !r.Approve, At: e.now}
	e.dirty = true
	return nil
}

// mayRedeem returns why an open ticket is not for this request.
func (b *Book) mayRedeem(e *edit, r *Record, q Request) error {
	if !r.For.IsZero() && r.For != q.PublicKey {
		return ErrWrongKey
	}
	for _, want := range q.Wants {
		if !slices.Contains(r.Allow, want) {
			return fmt.Errorf("%w: %q", ErrNotGranted, want)
		}
	}
	name := r.Name
	if name == "" {
		name = q.Name
	}
	taken := e.find(func(o Record) bool {
		if o.State == Open && r.Name == "" && o.Name == name {
			return true // it is reserved for that ticket's joiner
		}
		return o.State == Redeemed && o.By.Name == name && o.By.PublicKey != q.PublicKey
	})
	if taken != nil {
		return &NameTakenError{Name: name, Fixed: r.Name != ""}
	}
	if err := b.o.Names.Reserve(name, q.PublicKey, r.Name != ""); err != nil {
		if errors.As(err, new(*NameTakenError)) {
			return &NameTakenError{Name: name, Fixed: r.Name != ""}
		}
		if errors.Is(err, ErrKeyTaken) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	return nil
}

// grant returns the answer to whoever redeemed the ticket.
func (r *Record) grant(q Request) Grant {
	return Grant{
		Ticket: r.ID, Name: r.By.Name, Chosen: r.Name != "", PublicKey: r.By.PublicKey, PresharedKey: r.By.PresharedKey,
		Allow: r.By.Allow, Offers: q.Grants, Candidates: q.Candidates, Pending: !r.By.Approved,
	}
}

// Approve notes that an operator confirmed the key of a peer that a ticket left pending. It reports
// whether there was one.
func (b *Book) Approve(now time.Time, joiner peer.PublicKey) (bool, error) {
	var approved *Record
	err := b.change(now, func(e *edit) error {
		for i := range e.List {
			r := &e.List[i]
			if (r.State == Redeemed || r.State == Finished) && r.By.PublicKey == joiner && !r.By.Approved {
				r.By.Approved = true
				e.dirty = true
				approved = r
			}
		}
		return nil
	})
	if err != nil || approved == nil {
		return false, err
	}
	b.o.Audit.Record(context.Background(), audit.Approve, audit.Ticket(approved.ID.String()), audit.Peer(approved.By.Name), audit.PublicKey(joiner))
	return true, nil
}

func (b *Book) refuse(id ID, key peer.PublicKey, name string, err error) {
	if taken, ok := errors.AsType[*KeyTakenError](err); ok { // the joiner is not told whose
		err = fmt.Errorf("the joiner's key is %s", taken.Holder)
	}
	b.o.Audit.Record(context.Background(), audit.Refuse, audit.Ticket(id.String()), audit.PublicKey(key), audit.Peer(printable(name)), audit.Reason(err.Error()))
}

// printable makes an untrusted name safe for our log.
func printable(name string) string { return foreign.Of(name).Cut(64) }

func (b *Book) alarm(now time.Time, way Way, r Record, q Request) {
	b.alarms.Add(1)
	b.alarmed.Store(&alarm{now, r.By.PublicKey})
	who := "a second key"
	if q.checkProof(way, r.ID, b.o.Key) != nil {
		who = "somebody who does not prove to hold this key"
	}
	b.o.Audit.Record(context.Background(), audit.Alarm, audit.Ticket(r.ID.String()), audit.Code(audit.CodeTicketAlarm),
		audit.Peer(r.By.Name), audit.PublicKey(q.PublicKey),
		audit.Reason(who+" tried a ticket that was already used; if the peer is not who you invited, run `postern peer remove "+r.By.Name+"`"))
}
