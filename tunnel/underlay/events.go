package underlay

import (
	"sync"

	"github.com/postern-dev/postern/tunnel/handshake"
)

// eventsKept bounds the queue: more than the handshakes that wait in the device.
const eventsKept = 4096

// events is the queue to the handshake machines. The goroutines that send and receive fill it
// without blocking, since they may hold the device's locks.
type events struct {
	mu    sync.Mutex
	wake  func() // nil: nobody reads them
	queue []handshake.Event
}

// Listen sets the function that is called when there are [Bind.Events]. It must not block. From
// then on initiations wait for the listener's decision; without a listener they pass at once.
func (b *Bind) Listen(wake func()) {
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	b.events.wake = wake
}

// Events returns what has happened since the last call, in order.
func (b *Bind) Events() []handshake.Event {
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	all := b.events.queue
	b.events.queue = nil
	return all
}

// add queues an event and reports whether anyone will read it.
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

// Initiate sends one of the device's initiations on all paths of a peer.
func (b *Bind) Initiate(id string, m []byte) error {
	if f := b.peer(id); f != nil {
		return b.initiate(f, [][]byte{m})
	}
	return ErrNoCandidates
}
