package tunnel

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/uapi"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// The device returns the state of all its peers at once, as text: 3 µs and half a kilobyte for
// each. With many peers each peer's checks and each path change request it, more often than
// needed. So a reading is shared for a while, longer with more peers: half a second with 1,000.
// With few peers it is always read again.
const (
	alwaysRead = 16 // peers
	ageEach    = 500 * time.Microsecond
	maxShared  = 500 * time.Millisecond
)

// sharedFor is how long a reading of so many peers is shared.
func sharedFor(peers int) time.Duration {
	return min(time.Duration(max(peers-alwaysRead, 0))*ageEach, maxShared)
}

// readings shares readings of the device. It is safe for concurrent use. Only one reading is made
// at a time, and all who waited for it share it.
type readings struct {
	// state queries the device, look the underlay.
	state func() (uapi.Device, error)
	look  func() underlay.Observations
	// turn holds a token while nobody reads. Nobody keeps the token while waiting.
	turn chan struct{}

	mu    sync.Mutex // guards the following, held briefly
	last  *reading   // nil: none, or no longer valid
	begun uint64     // numbers assigned
}

func newReadings(state func() (uapi.Device, error), look func() underlay.Observations) *readings {
	r := &readings{state: state, look: look, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// begin takes the turn; end returns it.
func (r *readings) begin() (end func()) {
	<-r.turn
	return func() { r.turn <- struct{}{} }
}

// reading is the state of the device and, if requested, what the underlay had seen a moment later.
// It is immutable.
type reading struct {
	at    time.Time // before anything was read; zero: no reading
	n     uint64    // grows with each reading
	state uapi.Device
	seen  *underlay.Observations
}

// lasts is how much longer a reading may be used by a caller who accepts times the usual age.
func (r *reading) lasts(times int) time.Duration {
	if r == nil {
		return 0
	}
	return time.Duration(times)*sharedFor(len(r.state.Peers)) - time.Since(r.at)
}

// isAfter reports whether the reading was begun after the time.
func (r *reading) isAfter(t time.Time) bool { return r != nil && r.at.After(t) }

func (r *readings) newest() *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// recent returns a recent reading.
func (r *readings) recent() (reading, error) { return r.notOlder(1) }

// notOlder returns a reading of at most times the usual age.
func (r *readings) notOlder(times int) (reading, error) {
	if last := r.newest(); last.lasts(times) > 0 {
		return *last, nil
	}
	defer r.begin()()
	if last := r.newest(); last.lasts(times) > 0 {
		return *last, nil
	}
	return r.read()
}

// now returns a reading that was begun after the call, however recent the last one is.
func (r *readings) now() (reading, error) {
	called := time.Now()
	defer r.begin()()
	if last := r.newest(); last.isAfter(called) {
		return *last, nil
	}
	return r.read()
}

// fresh returns a reading that was begun after the call, with what was seen. With many peers it
// waits until the last one is old, so that concurrent callers share one. The wait fails with
// ErrClosed when closing is closed.
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

// due returns a reading that was begun after the time, with what was seen, or how long to wait
// until one may be made.
func (r *readings) due(after time.Time) (next reading, wait time.Duration, err error) {
	defer r.begin()()
	if last := r.newest(); last.isAfter(after) {
		next = *last
	} else if wait := last.lasts(1); wait > 0 {
		return reading{}, wait, nil
	} else if next, err = r.read(); err != nil {
		return reading{}, 0, err
	}
	if next.seen == nil {
		seen := r.look()
		next.seen = &seen
		r.keep(next)
	}
	return next, 0, nil
}

// read reads the device. Its caller has the turn.
func (r *readings) read() (reading, error) {
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

// keep shares a reading, unless it was forgotten meanwhile. Its caller has the turn.
func (r *readings) keep(next reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next.n == r.begun {
		r.last = &next
	}
}

// forget invalidates all readings so far, including one being made: peers have come or gone, and a
// counter that restarts must not be taken for the old one. upTo is the number of the last invalid
// reading.
func (r *readings) forget() (upTo uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	r.last = nil
	return r.begun
}
