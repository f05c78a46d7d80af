package sender

import "time"

const (
	// fullGrowth is the growth of bandwidth below which a round trip counts as one without,
	// and fullRounds how many of those end the exponential growth.
	fullGrowth = 1.25
	fullRounds = 3
	// limitedRounds is how many round trips in which the application gave too little count
	// as one.
	limitedRounds = 4
	// calmRounds is for how many round trips after a cut there is no other one: the flight
	// that overflowed the queue, and its losses.
	calmRounds = 2
	// emptyRounds and emptyTime are how long there must have been no queue for a window to
	// recover faster than CUBIC's does. Sooner, it takes what CUBIC's flows leave when they
	// have given way: 88 % of a bottleneck with a queue of 4 ms.
	emptyRounds, emptyTime = 5, time.Second
	// The parts of the base round trip that are taken for a queue: beside a loss, where there
	// is one for certain, and with hardly anything of ours in flight.
	besideLoss, certain, drained = 32, 16, 4
	// overwhelmed is how many packets of a round a rate limiter must drop to be taken for one.
	overwhelmed = 6
)

// round counts round trips (draft-ietf-ccwg-bbr), and has what was seen in the present one.
type round struct {
	count       int
	ends        int64         // delivered at its end
	least       time.Duration // RTT; 0 is none
	beside      time.Duration // the longest RTT that came with a loss
	sum         time.Duration // of RTTs
	samples     time.Duration // how many
	long        time.Duration // of those, how many show a queue
	most        int           // in flight
	before      int           // in flight in the one before
	since       time.Duration // when it began
	sinceBefore time.Duration // when the one before did
	lostAt      time.Duration // when the last of what was found lost had departed; 0 is nothing was
	cutAt       time.Duration // when there was a cut last
	calm        int           // the last one in which a cut isn't followed by another
	crowded     int           // rounds in a row of which most shows a queue
	empty       int           // rounds in a row without a queue
	emptyAt     time.Duration // when the last one with a queue was
}

// fullPipe tells when startup has found the bandwidth.
type fullPipe struct {
	rate    float64
	rounds  int
	limited int
	reached bool
}

// queued reports whether the present round's losses were beside a queue: by the round trip that was
// last when something was lost, and by most of the round's, since a processor that is busy for a
// moment makes some longer. On a path with jitter it takes all, since some long one is always near.
func (c *controller) queued() bool {
	r := &c.round
	if c.path.noise.mean < noiseLeast && c.path.queued(r.beside, besideLoss) && r.long > r.samples/2 {
		return true
	}
	return c.path.queued(r.least, besideLoss)
}

// endRound judges what a round trip showed.
func (c *controller) endRound(now time.Duration, s sample) {
	if c.round.long > c.round.samples/2 {
		c.round.crowded++
	} else {
		c.round.crowded = 0
	}
	if c.full.reached && c.path.settle(now, c.round.least, c.round.most) {
		c.longer(now)
	}
	queued := c.queued()
	if !queued && c.full.reached && c.round.count > c.round.calm && (c.path.policed() || c.round.lostAt > c.round.cutAt) && c.judge.flown.lost >= overwhelmed && c.judge.flown.exceeds(ambientMost, c.judge.ambient()) {
		c.limit(now, c.judge.flown, now-c.round.sinceBefore)
	}
	c.judge.endRound(queued, c.steady())
	if c.full.look(c.path.bandwidth(), s.limited); c.full.reached && c.turn.phase == startup && s.limited {
		c.path.filled, c.path.filledBefore = false, false // It ended for want of data: see grow.
	}
	if c.round.least > 0 && !c.path.queued(c.round.least, certain) && c.judge.queue.lost < 1 {
		c.round.empty++
	} else {
		c.round.empty, c.round.emptyAt = 0, now
	}
	switch {
	case !c.full.reached:
		if c.judge.overran(queued) {
			c.full.reached = true
			c.congestion(now)
		}
	case c.round.count <= c.round.calm, c.round.lostAt > 0 && c.round.lostAt <= c.round.cutAt: // What is lost was on its way before the last cut.
		c.judge.forgive()
	case c.judge.congested():
		c.congestion(now)
	case c.yielded():
		c.giveWay(now)
	default:
		c.bound.grow(now, c.path.trips.smoothed, c.round.most)
		if !c.rivaled && c.round.empty >= emptyRounds && now-c.round.emptyAt > emptyTime {
			enough := gains[up].pacing
			if c.turn.phase == up {
				enough = gains[up].window // What is in flight is growing, and so may the rate.
			}
			c.bound.recover(c.round.most, c.path.bdp(enough))
		}
	}
	if c.turn.phase == probeRTT {
		c.rival.forget() // The queue will be shorter, by our doing.
	}
	c.rival.look(now, &c.path, c.round.least)
	c.rivaled = c.rival.present(now)
	if c.rivaled && c.bound.bytes == 0 {
		c.bound.set(now, c.round.most)
	}
	if !c.rivaled && c.bound.bytes > 4*c.path.bdp(1)+16*c.path.packet {
		c.bound.bytes = 0 // It bounds nothing.
	}
}

// longer begins again on a path that has become longer: there was no queue beside what was lost, and
// no cause to give way.
func (c *controller) longer(now time.Duration) {
	c.judge.free, c.bound.bytes, c.full = c.judge.all, 0, fullPipe{}
	c.judge.forgive()
	c.rival.gone()
	c.rival.forget()
	c.enter(now, startup)
}

// yielded reports whether others have given way in a round, as far as round trips tell.
func (c *controller) yielded() bool {
	return c.rivaled && c.turn.phase != probeRTT && c.path.noise.mean < noiseLeast &&
		c.round.samples > 0 && c.rival.yields(c.round.sum/c.round.samples, c.path.base, c.round.crowded)
}

// congestion answers to loss by congestion.
func (c *controller) congestion(now time.Duration) {
	if c.steady() && c.round.lostAt > c.turn.evenAt && c.round.crowded >= crowdRounds {
		c.rival.met(now) // We send no more than the path delivered: others do.
	}
	c.giveWay(now)
}

// giveWay has less in flight.
func (c *controller) giveWay(now time.Duration) {
	flight := max(c.round.most, c.round.before)
	if c.turn.phase == probeRTT { // Little is in flight, but not because of the window.
		flight = max(flight, c.bound.bytes)
	}
	c.bound.cut(now, flight)
	c.judge.forgive()
	c.round.calm, c.round.cutAt = c.round.count+calmRounds, now
	c.rival.forget()
	if c.turn.phase == up {
		c.enter(now, down)
	}
}

// look takes in a round trip.
func (f *fullPipe) look(rate float64, limited bool) {
	if f.reached {
		return
	}
	if limited {
		if f.limited++; f.limited%limitedRounds != 0 {
			return
		}
	}
	if rate >= f.rate*fullGrowth {
		f.rate, f.rounds = rate, 0
		return
	}
	f.rounds++
	f.reached = f.rounds >= fullRounds
}
