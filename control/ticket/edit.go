package ticket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// clockStep is how far the clock may go back before it counts as set back:
	// slewing by NTP stays far below.
	clockStep = time.Second
	// saveSeen is how old the stored time may be while tickets are open. It bounds
	// how much life a crash together with a clock that is set back can give.
	saveSeen = 30 * time.Second
)

// edit is a change of the book in the making.
type edit struct {
	Records
	now     time.Time // wall clock
	dirty   bool      // there is something to store
	dropped []peer.PublicKey
	expired []Record
	// atOnce: it counts also when it cannot be stored.
	atOnce bool
}

// end moves a record to an end state, without a one-time peer.
func (e *edit) end(r *Record, s State) {
	e.silence(r)
	r.State, r.EndedAt = s, e.now
	e.dirty = true
}

// finish moves a redeemed record to its good end; the one-time peer goes on answering.
func (e *edit) finish(r *Record) {
	r.State, r.EndedAt = Finished, e.now
	e.dirty = true
}

// silence takes a record's one-time peer away, if it has one.
func (e *edit) silence(r *Record) {
	if r.answers() {
		e.dropped = append(e.dropped, r.OneTime)
		e.dirty = true
	}
	r.Tunnel = peer.PresharedKey{}
}

// makeRoom silences the oldest finished tickets while all one-time peers together are
// as many as there may be open tickets.
func (e *edit) makeRoom() {
	answering := 0
	for _, r := range e.List {
		if r.answers() {
			answering++
		}
	}
	for i := 0; i < len(e.List) && answering >= MaxOpen; i++ {
		if r := &e.List[i]; r.answers() && !r.live() {
			e.silence(r)
			answering--
		}
	}
}

// change runs f on a copy of the book and stores the copy if it is dirty, also when f
// returns an error: a failed redemption counts.
func (b *Book) change(now time.Time, f func(*edit) error) error {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	old := b.records.Load()
	e := &edit{Records: old.clone(), now: now.Round(0)}
	e.advance(b.seen, now)
	err := f(e)
	e.forget()
	if e.now.Sub(old.Seen) >= saveSeen && slices.ContainsFunc(e.List, Record.live) {
		e.dirty = true
	}
	if e.dirty {
		e.Seen = e.now
		saveErr := b.o.Storage.SaveTickets(e.Records)
		if saveErr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", ErrStorage, saveErr))
			if !e.atOnce {
				return err
			}
		}
		b.unstored.Store(saveErr != nil)
		b.records.Store(&e.Records)
	}
	b.seen = now
	b.dropped = append(b.dropped, e.dropped...)
	for _, r := range e.expired {
		b.o.Audit.Record(context.Background(), audit.Expire, audit.Ticket(r.ID.String()), audit.ExpiresAt(r.ExpiresAt))
	}
	return err
}

// advance takes the deadlines to the present. A clock that was set back would give
// tickets more life, or life again: the deadlines go back by as much. Within one run
// of the process the monotonic clock tells how much that is; across a restart it is at
// least how far the clock is behind the time last seen.
func (e *edit) advance(seen, now time.Time) {
	// Sub is monotonic if both readings are.
	if back := setBack(now.Sub(seen), now.Round(0).Sub(seen.Round(0))); back > 0 {
		for i := range e.List {
			if e.List[i].answers() {
				e.List[i].ExpiresAt = e.List[i].ExpiresAt.Add(-back)
				e.dirty = true
			}
			if ended := e.List[i].EndedAt; !ended.IsZero() {
				e.List[i].EndedAt = ended.Add(-back)
			}
		}
	}
	for i := range e.List {
		r := &e.List[i]
		if !r.answers() || e.now.Before(r.ExpiresAt) {
			continue
		}
		switch r.State {
		case Finished:
			e.silence(r)
		case Redeemed:
			e.end(r, Finished)
		default:
			e.end(r, Expired)
			e.expired = append(e.expired, *r)
		}
	}
}

// setBack is by how much the clock was set back, at least, when so much time has passed
// by the monotonic clock and by the wall clock. Where there is no monotonic clock the
// two are the same.
func setBack(monotonic, wall time.Duration) time.Duration {
	back := max(monotonic, 0) - wall
	if back < clockStep {
		return 0
	}
	return back
}

// forget drops what ended long ago, and the oldest of too many.
func (e *edit) forget() {
	n := len(e.List)
	e.List = slices.DeleteFunc(e.List, func(r Record) bool {
		return !r.answers() && e.now.Sub(r.EndedAt) > keepEnded
	})
	ended := 0
	for i := len(e.List) - 1; i >= 0; i-- {
		if e.List[i].answers() {
			continue
		}
		if ended++; ended > MaxRemembered {
			e.List = slices.Delete(e.List, i, i+1)
		}
	}
	if len(e.List) != n {
		e.dirty = true
	}
}

// Expire puts an end to the tickets whose time is up and gives the one-time keys of
// all tickets that ended since it was last called: the tunnel must drop them.
// Keys are given also along with an error; a key that could not be ended for want of
// storage is given again by a later call.
func (b *Book) Expire(now time.Time) ([]peer.PublicKey, error) {
	err := b.change(now, func(e *edit) error {
		e.dirty = e.dirty || b.unstored.Load()
		return nil
	})
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	drop := b.dropped
	b.dropped = nil
	return drop, err
}

// NextDeadline is when the next ticket expires; false when none has a one-time peer.
func (b *Book) NextDeadline() (time.Time, bool) {
	var next time.Time
	for _, r := range b.records.Load().List {
		if r.answers() && (next.IsZero() || r.ExpiresAt.Before(next)) {
			next = r.ExpiresAt
		}
	}
	return next, !next.IsZero()
}

// Finish notes that the peer with this key came by its ticket, if it did by one: its
// own first handshake has arrived. Until the deadline the ticket's one-time peer stays,
// to tell a second key that it came too late.
func (b *Book) Finish(now time.Time, joiner peer.PublicKey) error {
	_, err := b.endFor(now, Finished, func(r Record) bool { return r.State == Redeemed && r.By.PublicKey == joiner })
	return err
}

// Leaver is a peer that is removed.
type Leaver struct {
	// Name is what the peer is called here, which it was from the start. Ticket is the id of
	// the ticket by which it came; empty when it came by none.
	Name, Ticket string
	// Keys are those that it has and ever had.
	Keys []peer.PublicKey
}

// cameBy reports whether the peer is who redeemed a ticket. Its key may be another by now.
func (l Leaver) cameBy(r Record) bool {
	return (r.State == Redeemed || r.State == Finished) &&
		(r.By.Name == l.Name || r.ID.String() == l.Ticket || slices.Contains(l.Keys, r.By.PublicKey))
}

// Forget ends what a peer came by, because the peer is removed: none of its tickets and
// replies can bring it back. The tunnel must drop the one-time keys that it returns. It
// counts at once: along with an [ErrStorage] the keys are given as well, and Expire stores it
// when that is possible again.
func (b *Book) Forget(now time.Time, l Leaver) ([]peer.PublicKey, error) {
	return b.endFor(now, Closed, l.cameBy)
}

// Unstored reports whether the book has a change that could not be stored yet.
func (b *Book) Unstored() bool { return b.unstored.Load() }

func (b *Book) endFor(now time.Time, s State, ends func(Record) bool) ([]peer.PublicKey, error) {
	// Handshakes are frequent and tickets rare: look before taking the turn.
	if !slices.ContainsFunc(b.records.Load().List, ends) {
		return nil, nil
	}
	var drop []peer.PublicKey
	err := b.change(now, func(e *edit) error {
		e.atOnce = s == Closed
		for i := range e.List {
			if r := &e.List[i]; ends(*r) {
				if s == Finished {
					e.finish(r)
					continue
				}
				if r.answers() {
					drop = append(drop, r.OneTime)
				}
				e.end(r, s)
			}
		}
		return nil
	})
	if err != nil && s != Closed {
		return nil, err
	}
	return drop, err
}
