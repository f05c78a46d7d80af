// Package mail hands messages to peers in-band: in order, again while nobody answers, and not
// to those that refuse them.
package mail

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// handTry bounds one try to hand a message over: two round trips inside the tunnel,
	// with a handshake before them and a segment or two lost.
	handTry = 5 * time.Second
	// handTries is how often a message is tried. A later one says the same again.
	handTries = 3
	// leaveAlone is how long a peer that takes no such messages is left alone.
	leaveAlone = 5 * time.Minute
)

// Options say what a sender delivers and how.
type Options[T any] struct {
	// Ctx ends with the gateway.
	Ctx context.Context
	// Hand makes one try to hand a message over.
	Hand func(ctx context.Context, to peer.PublicKey, message T) error
	// Urgent reports whether a message is worth one try only: who is told of it later is
	// told wrong. nil: none is.
	Urgent func(message T) bool
	// Failed is told of each message that was not delivered; may be nil.
	Failed func(to peer.PublicKey, err error)
	// Room is how many messages wait for one peer, at least 1. When more do, the oldest
	// goes: the newer one says more.
	Room int
}

// Sender hands messages to peers in-band: in order, again while nobody answers, and not to
// those that refuse them. There is one goroutine for each peer that there is something for.
// It is safe for concurrent use.
type Sender[T any] struct {
	o Options[T]

	mu      sync.Mutex
	boxes   map[peer.PublicKey]*box[T]
	stopped bool
	wg      sync.WaitGroup
}

type box[T any] struct {
	waiting []T
	// refused is when the peer said that it takes no such messages.
	refused time.Time
	busy    bool
}

// New makes a sender that has nothing to deliver.
func New[T any](o Options[T]) *Sender[T] {
	return &Sender[T]{o: o, boxes: map[peer.PublicKey]*box[T]{}}
}

// Post queues a message. It does not block.
func (m *Sender[T]) Post(to peer.PublicKey, message T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	b := m.boxes[to]
	if b == nil {
		b = &box[T]{}
		m.boxes[to] = b
	}
	if time.Since(b.refused) < leaveAlone { // The newest is kept: it says everything.
		b.waiting = append(b.waiting[:0], message)
		return
	}
	if len(b.waiting) >= m.o.Room {
		b.waiting = b.waiting[1:]
	}
	b.waiting = append(b.waiting, message)
	m.startLocked(to, b)
}

func (m *Sender[T]) startLocked(to peer.PublicKey, b *box[T]) {
	if !b.busy {
		b.busy = true
		m.wg.Go(func() { m.deliver(to, b) })
	}
}

// Spoke tells that a peer has sent a message of its own: it takes ours then.
func (m *Sender[T]) Spoke(from peer.PublicKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.boxes[from]
	if m.stopped || b == nil || b.refused.IsZero() {
		return
	}
	b.refused = time.Time{}
	if len(b.waiting) > 0 {
		m.startLocked(from, b)
	}
}

// deliver empties a box.
func (m *Sender[T]) deliver(to peer.PublicKey, b *box[T]) {
	for {
		m.mu.Lock()
		if len(b.waiting) == 0 || m.stopped {
			b.busy = false
			m.mu.Unlock()
			return
		}
		message := b.waiting[0]
		b.waiting = b.waiting[1:]
		m.mu.Unlock()
		err := m.handOver(to, message)
		if errors.Is(err, auth.ErrRequest) && m.refuse(b, message) {
			return
		}
		if err != nil && m.o.Failed != nil {
			m.o.Failed(to, err)
		}
	}
}

// refuse keeps the newest message for a peer that takes none now, in case it does later.
func (m *Sender[T]) refuse(b *box[T], message T) (ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	b.refused, b.busy = time.Now(), false
	if len(b.waiting) == 0 {
		b.waiting = []T{message}
	} else {
		b.waiting = b.waiting[len(b.waiting)-1:]
	}
	return true
}

// handOver delivers one message, in a few tries while nobody answers.
func (m *Sender[T]) handOver(to peer.PublicKey, message T) (err error) {
	urgent := m.o.Urgent != nil && m.o.Urgent(message)
	for range handTries {
		ctx, cancel := context.WithTimeout(m.o.Ctx, handTry)
		err = m.o.Hand(ctx, to, message)
		cancel()
		if err == nil || m.o.Ctx.Err() != nil || urgent || !errors.Is(err, auth.ErrUnreachable) {
			return err
		}
	}
	return err
}

// Forget drops what waits for a peer that is gone.
func (m *Sender[T]) Forget(k peer.PublicKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.boxes[k]; b != nil {
		b.waiting = nil
		delete(m.boxes, k)
	}
}

// Close drops what waits, and waits for what is in progress; ctx has ended by then.
func (m *Sender[T]) Close() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.wg.Wait()
}
