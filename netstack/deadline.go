package netstack

import (
	"sync"
	"time"
)

// deadline is a point in time that can be moved and waited for. The zero value has none.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{} // closed when the deadline passes; replaced when it is moved
}

// passed returns a channel that is closed once the deadline has passed.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.channelLocked()
}

func (d *deadline) channelLocked() chan struct{} {
	if d.expired == nil {
		d.expired = make(chan struct{})
	}
	return d.expired
}

// set moves the deadline; the zero time means none. A waiter on the old channel notices when the
// deadline passes, even after a move.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.channelLocked() // the timer has fired: let it close its channel before replacing it
	}
	d.timer = nil
	expired := d.channelLocked()
	select {
	case <-expired:
		expired = make(chan struct{})
		d.expired = expired
	default:
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		close(expired)
		return
	}
	d.timer = time.AfterFunc(left, func() { close(expired) })
}

// stop releases the timer.
func (d *deadline) stop() { d.set(time.Time{}) }

// isClosed reports whether ch is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
