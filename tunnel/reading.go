package tunnel

import (
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tunnel/uapi"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// The device tells the state of all its peers or nothing, as text: 3 µs and half a kilobyte
// for each. Of many peers nobody needs it so often as it is asked for (by each check of
// each of them, and whenever a path changes), so a reading serves for a while, the longer
// the more peers there are: at 1,000 peers half a second. Few are always read anew.
const (
	readAnew    = 16 // peers
	ageEach     = 500 * time.Microsecond
	greatestAge = 500 * time.Millisecond
)

// readings shares readings of the device. It is safe for concurrent use: one is made at a
// time, and whoever waited for it takes it.
type readings struct {
	// state asks the device, look the underlay.
	state func() (uapi.Device, error)
	look  func() underlay.Observations

	last atomic.Pointer[reading] // nil: there is none, or it no longer counts
	turn chan struct{}           // holds one while nobody reads; whoever has it may change last
	made uint64
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

// lasts is for how long a reading serves yet.
func (r *reading) lasts() time.Duration {
	if r == nil {
		return 0
	}
	age := min(time.Duration(max(len(r.state.Peers)-readAnew, 0))*ageEach, greatestAge)
	return age - time.Since(r.at)
}

// lately is a reading that is not old. It does not wait for those who wait for it to be.
func (r *readings) lately() (reading, error) {
	if last := r.last.Load(); last.lasts() > 0 {
		return *last, nil
	}
	defer r.begin()()
	if last := r.last.Load(); last.lasts() > 0 {
		return *last, nil
	}
	next, err := r.anew()
	return *next, err
}

// fresh is a reading that was begun after the call, with what was seen. Of many peers it
// waits until the last one is old, so that those who come meanwhile share it.
func (r *readings) fresh() (reading, error) {
	called := time.Now()
	defer r.begin()()
	next := r.last.Load()
	if next == nil || !next.at.After(called) {
		if wait := next.lasts(); wait > 0 {
			time.Sleep(wait)
		}
		var err error
		if next, err = r.anew(); err != nil {
			return reading{}, err
		}
	}
	if next.seen == nil {
		seen := r.look()
		with := *next
		with.seen, next = &seen, &with
		r.last.Store(next)
	}
	return *next, nil
}

// anew reads. Its caller has the turn.
func (r *readings) anew() (*reading, error) {
	now := time.Now()
	state, err := r.state()
	if err != nil {
		return &reading{}, err
	}
	r.made++
	next := &reading{at: now, n: r.made, state: state}
	r.last.Store(next)
	return next, nil
}

// forget has the next one read anew: peers have come or gone, and a counter that starts
// over must not be taken for the one before.
func (r *readings) forget() {
	defer r.begin()()
	r.last.Store(nil)
}
