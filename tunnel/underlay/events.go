package underlay

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/handshake"
)

// eventsKept bounds those that nobody has taken yet: more than the device has handshakes waiting.
const eventsKept = 4096

// events are a queue to whoever decides on handshakes. The goroutines that send and
// receive fill it, which may hold the device's locks: they wait for nobody.
type events struct {
	mu    sync.Mutex
	wake  func() // nil: nobody takes any
	queue []handshake.Event
}

// Listen sets whom to wake when there are [Bind.Events]. It must not block. From then on
// initiations wait for what the one who is woken decides; without one they pass at once.
func (b *Bind) Listen(wake func()) {
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	b.events.wake = wake
}

// Events takes what has happened since the last call, in order.
func (b *Bind) Events() []handshake.Event {
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	all := b.events.queue
	b.events.queue = nil
	return all
}

// add reports whether somebody will take the event.
func (e *events) add(event handshake.Event) bool {
	e.mu.Lock()
	wake := e.wake
	if wake == nil || len(e.queue) >= eventsKept {
		e.mu.Unlock()
		return false
	}
	e.queue = append(e.queue, event)
	e.mu.Unlock()
	wake()
	return true
}

// Initiate sends an initiation of the device's over all paths of a peer.
func (b *Bind) Initiate(id string, m []byte) error {
	if f := b.peer(id); f != nil {
		return b.initiate(f, [][]byte{m})
	}
	return ErrNoCandidates
}

// Deliver gives the device an initiation that waited, unless a copy of it came over a path on which
// none does. Then its path is noted.
func (b *Bind) Deliver(in handshake.Initiation) {
	if !b.copies.claim(in.Message, time.Now()) {
		b.dropCopy(in.Message, in.From)
		return
	}
	select {
	case b.relays.queue <- relayed{&in.Message, in.From}:
	default:
		b.crowdedOut(in.Message)
	}
}
