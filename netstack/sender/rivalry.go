package sender

import "time"

const (
	// rivalStarts is the round trip in bases that tells of others who fill a queue: alone,
	// and among its like, a flow keeps no more than two in flight. rivalRounds is for how
	// many round trips it must be so.
	rivalStarts, rivalRounds = 3, 3
	// rivalKept is for how long a sign of others counts: some of CUBIC's periods.
	rivalKept = 10 * time.Second
)

// rivalry tells whether others fill the queue, so that BBR's window and pacing would leave
// it a small part of the path. Then the window is CUBIC's alone.
type rivalry struct {
	until  time.Duration // the present signs count until then
	rounds int
}

// present reports whether there are others.
func (r *rivalry) present(now time.Duration) bool { return now < r.until }

// met takes in a sign of others.
func (r *rivalry) met(now time.Duration) { r.until = now + rivalKept }

// look takes in a round's least round trip, 0 for none.
func (r *rivalry) look(now time.Duration, path *pathModel, least time.Duration) {
	switch {
	case least == 0: // And there is a base otherwise.
	case least <= rivalStarts*path.base+5*time.Millisecond:
		r.rounds = 0
	default:
		if r.rounds++; r.rounds >= rivalRounds {
			r.met(now)
		}
	}
}

// gone takes in that the queue was empty while hardly anything was sent: it was our own.
func (r *rivalry) gone() { r.until, r.rounds = 0, 0 }
