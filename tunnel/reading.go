package tunnel

import (
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

	turn chan struct{} // holds one while nobody reads
	last reading       // of whoever has the turn, as is made
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

// lasts is for how long the last reading serves.
func (r *readings) lasts() time.Duration {
	return min(time.Duration(max(len(r.last.state.Peers)-readAnew, 0))*ageEach, greatestAge)
}

// lately is a reading that is not old.
func (r *readings) lately() (reading, error) {
	defer r.begin()()
	if !r.last.at.IsZero() && time.Since(r.last.at) < r.lasts() {
		return r.last, nil
	}
	return r.anew()
}

// fresh is a reading that was begun after the call, with what was seen. Of many peers it
// waits until the last one is old, so that those who come meanwhile share it.
func (r *readings) fresh() (reading, error) {
	called := time.Now()
	defer r.begin()()
	if !r.last.at.After(called) {
		if wait := r.lasts() - time.Since(r.last.at); !r.last.at.IsZero() && wait > 0 {
			time.Sleep(wait)
		}
		if _, err := r.anew(); err != nil {
			return reading{}, err
		}
	}
	if r.last.seen == nil {
		seen := r.look()
		r.last.seen = &seen
	}
	return r.last, nil
}

// anew reads. Its caller has the turn.
func (r *readings) anew() (reading, error) {
	now := time.Now()
	state, err := r.state()
	if err != nil {
		return reading{}, err
	}
	r.made++
	r.last = reading{at: now, n: r.made, state: state}
	return r.last, nil
}

// forget has the next one read anew: peers have come or gone, and a counter that starts
// over must not be taken for the one before.
func (r *readings) forget() {
	defer r.begin()()
	r.last = reading{}
}
