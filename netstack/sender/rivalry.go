package sender

import "time"

const (
	// rivalStarts is the round trip, in multiples of the base, that shows that others fill a queue:
	// alone or among its kind, a flow keeps at most two BDPs in flight. rivalRounds is for how many
	// round trips it must last.
	rivalStarts, rivalRounds = 3, 3
	// rivalKept is how long a sign of others counts: several periods of CUBIC.
	rivalKept = 10 * time.Second
	// crowdRounds is for how many round trips a queue must have existed before its overflow or its
	// end is a sign of others. Queues of others grow over many round trips; a busy CPU causes a
	// single long one.
	crowdRounds = 2
	// yieldedPart: the round trip gets shorter by 1/12 when a flow that has a quarter of the path
	// and its queue backs off, because CUBIC gives up 30 % of that.
	yieldedPart = 12
)

// rivalry detects whether others fill the queue, so that BBR's window and pacing would get only a
// small part of the path. Then only CUBIC's window applies.
type rivalry struct {
	until  time.Duration // how long the current signs count
	rounds int
	high   time.Duration // the longest mean round trip since anybody backed off; 0 is none
}

// present reports whether there are others.
func (r *rivalry) present(now time.Duration) bool { return now < r.until }

// seen records a sign of others.
func (r *rivalry) seen(now time.Duration) { r.until = now + rivalKept }

// look records a round's shortest round trip, 0 for none.
func (r *rivalry) look(now time.Duration, path *pathModel, least time.Duration) {
	switch {
	case least == 0: // Otherwise there is a base.
	case least <= rivalStarts*path.base+5*time.Millisecond:
		r.rounds = 0
	default:
		if r.rounds++; r.rounds >= rivalRounds {
			r.seen(now)
		}
	}
}

// yields records a round's mean round trip and reports whether others have backed off: an existing
// queue has become much shorter, and not because of us. TCP stacks send in bursts, and a full queue
// drops packets of bursts three times as often as paced ones. So backing off only for our own
// losses would leave them a fifth of the path. By up to noise, means differ without a queue.
func (r *rivalry) yields(mean, base, noise time.Duration, crowded int) bool {
	if mean >= r.high || r.high == 0 {
		if crowded >= crowdRounds {
			r.high = mean
		}
		return false
	}
	fell := r.high - mean
	return fell > max(leastQueue, base/besideLoss, noise) && (fell > (r.high-base)/2 || fell > r.high/yieldedPart)
}

// forget starts over, because we have backed off ourselves.
func (r *rivalry) forget() { r.high = 0 }

// gone records that the queue was empty while little was sent, so it was our own.
func (r *rivalry) gone() { r.until, r.rounds = 0, 0 }
