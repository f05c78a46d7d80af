package tunnel

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/uapi"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// The device tells the state of all its peers or nothing, as text: 3 µs and half a kilobyte
// for each. Of many peers nobody needs it so often as it is asked for (by each check of
// each of them, and whenever a path changes), so a reading serves for a while, the longer
// the more peers there are: at 1,000 peers half a second. Few are always read again.
const (
	readAnew    = 16 // peers
	ageEach     = 500 * time.Microsecond
	greatestAge = 500 * time.Millisecond
)

// serves is for how long a reading of so many peers does.
func serves(peers int) time.Duration {
	return min(time.Duration(max(peers-readAnew, 0))*ageEach, greatestAge)
}

// readings shares readings of the device. It is safe for concurrent use: one is made at a
// time, and whoever waited for it takes it.
type readings struct {
	// state asks the device, look the underlay.
	state func() (uapi.Device, error)
	look  func() underlay.Observations
	// turn holds one while nobody reads. Nobody keeps it while waiting for time to pass.
	turn chan struct{}

	mu    sync.Mutex // guards what follows, for moments
	last  *reading   // nil: there is none, or it no longer counts
	begun uint64     // numbers given away
}

func newReadings(state func() (uapi.Device, error), look func() underlay.Observations) *readings {
	r := &readings{state: state, look: look, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// begin takes the turn; end gives it back.
func (r *readings) begin() (end func()) {
	<-r.turn
	return func() { r.turn <- struct{}{} }
}

// reading is the state of the device and, if somebody has asked for it, what the underlay
// had seen a moment later. Nobody changes it.
type reading struct {
	at    time.Time // before anything was read; zero: there is no reading
	n     uint64    // later ones have greater numbers
	state uapi.Device
	seen  *underlay.Observations
}

// lasts is for how long a reading serves yet, where it may be so many times as old.
func (r *reading) lasts(times int) time.Duration {
	if r == nil {
		return 0
	}
	return time.Duration(times)*serves(len(r.state.Peers)) - time.Since(r.at)
}

// isAfter reports whether the reading was begun after the time.
func (r *reading) isAfter(t time.Time) bool { return r != nil && r.at.After(t) }

func (r *readings) newest() *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// lately is a reading that is not old.
func (r *readings) lately() (reading, error) { return r.notOlder(1) }

// notOlder is a reading that is no older than so many times what one serves.
func (r *readings) notOlder(times int) (reading, error) {
	if last := r.newest(); last.lasts(times) > 0 {
		return *last, nil
	}
	defer r.begin()()
	if last := r.newest(); last.lasts(times) > 0 {
		return *last, nil
	}
	return r.again()
}

// now is a reading that was begun after the call, however young the last one is.
func (r *readings) now() (reading, error) {
	called := time.Now()
	defer r.begin()()
	if last := r.newest(); last.isAfter(called) {
		return *last, nil
	}
	return r.again()
}

// fresh is a reading that was begun after the call, with what was seen. Of many peers it
// waits until the last one is old, so that those who come meanwhile share it. The wait
// fails with ErrClosed when closing is closed.
func (r *readings) fresh(closing <-chan struct{}) (reading, error) {
	called := time.Now()
	for {
		next, wait, err := r.due(called)
		if err != nil || wait <= 0 {
			return next, err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-closing:
			t.Stop()
			return reading{}, ErrClosed
		}
	}
}

// due is a reading that was begun after the time, with what was seen, or how long to wait
// until one may be made.
func (r *readings) due(after time.Time) (next reading, wait time.Duration, err error) {
	defer r.begin()()
	if last := r.newest(); last.isAfter(after) {
		next = *last
	} else if wait := last.lasts(1); wait > 0 {
		return reading{}, wait, nil
	} else if next, err = r.again(); err != nil {
		return reading{}, 0, err
	}
	if next.seen == nil {
		seen := r.look()
		next.seen = &seen
		r.keep(next)
	}
	return next, 0, nil
}

// again reads. Its caller has the turn.
func (r *readings) again() (reading, error) {
	r.mu.Lock()
	r.begun++
	next := reading{at: time.Now(), n: r.begun}
	r.mu.Unlock()
	var err error
	if next.state, err = r.state(); err != nil {
		return reading{}, err
	}
	r.keep(next)
	return next, nil
}

// keep has others share a reading, unless it was forgotten meanwhile. Its caller has the turn.
func (r *readings) keep(next reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next.n == r.begun {
		r.last = &next
	}
}

// forget has the next one read again: peers have come or gone, and a counter that starts
// over must not be taken for the one before. Readings up to the number are from before,
// also one that is being made.
func (r *readings) forget() (upTo uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	r.last = nil
	return r.begun
}
