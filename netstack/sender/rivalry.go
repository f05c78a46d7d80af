package sender

import "time"

const (
	// rivalStarts is the round trip in bases that tells of others who fill a queue: alone,
	// and among its like, a flow keeps no more than two in flight. rivalRounds is for how
	// many round trips it must be so.
	rivalStarts, rivalRounds = 3, 3
	// rivalKept is for how long a sign of others counts: some of CUBIC's periods.
	rivalKept = 10 * time.Second
	// crowdRounds is for how many round trips there must have been a queue before a loss, or before
	// it is gone, tells of others: theirs grows in many, and a processor is busy for one.
	crowdRounds = 2
	// yieldedPart is the part of the round trip by which it gets shorter when somebody gives way
	// who has a quarter of the path and its queue: CUBIC gives up 30 % of that.
	yieldedPart = 12
)

// rivalry tells whether others fill the queue, so that BBR's window and pacing would leave
// it a small part of the path. Then the window is CUBIC's alone.
type rivalry struct {
	until  time.Duration // the present signs count until then
	rounds int
	high   time.Duration // the longest mean round trip since anybody gave way; 0 is none
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

// yields takes in a round's mean round trip, and reports whether others have given way: a queue that
// was there is much shorter, and not by our doing. Stacks send in bursts, of which a full queue drops
// something three times as often as of packets that are paced, so to give way for our own losses
// alone would leave them a fifth of the path.
func (r *rivalry) yields(mean, base time.Duration, crowded int) bool {
	if mean >= r.high || r.high == 0 {
		if crowded >= crowdRounds {
			r.high = mean
		}
		return false
	}
	fell := r.high - mean
	return fell > max(leastQueue, base/besideLoss) && (fell > (r.high-base)/2 || fell > r.high/yieldedPart)
}

// forget begins to look for that again: it is we who gave way.
func (r *rivalry) forget() { r.high = 0 }

// gone takes in that the queue was empty while hardly anything was sent: it was our own.
func (r *rivalry) gone() { r.until, r.rounds = 0, 0 }
