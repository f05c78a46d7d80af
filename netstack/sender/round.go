package sender

import "time"

const (
	// fullGrowth is the growth of bandwidth below which a round trip counts as one without growth.
	// fullRounds of those end startup.
	fullGrowth = 1.25
	fullRounds = 3
	// limitedRounds is how many application-limited round trips count as one.
	limitedRounds = 4
	// calmRounds is for how many round trips after a cut there is no other one, because the flight
	// that overflowed the queue still causes losses.
	calmRounds = 2
	// emptyRounds and emptyTime are how long there must have been no queue for a window to recover
	// faster than CUBIC's does. Any sooner, it takes what CUBIC flows leave after they have backed
	// off: 88 % of a bottleneck with a queue of 4 ms.
	emptyRounds, emptyTime = 5, time.Second
	// The fractions of the base round trip that count as a queue: beside a loss, where there
	// certainly is one, and with almost nothing of ours in flight.
	besideLoss, certain, drained = 32, 16, 4
	// overwhelmed is the least number of packets that a rate limiter must drop in a round to be
	// detected.
	overwhelmed = 6
)

// round counts round trips (draft-ietf-ccwg-bbr) and records the current one.
type round struct {
	count       int
	ends        int64         // value of delivered that ends it
	least       time.Duration // RTT; 0 is none
	longest     time.Duration // RTT
	beside      time.Duration // the longest RTT beside a loss
	sum         time.Duration // of RTTs
	samples     time.Duration // number of RTTs
	long        time.Duration // RTT samples that show a queue
	most        int           // in flight
	before      int           // in flight in the round before
	since       time.Duration // when it began
	sinceBefore time.Duration // when the round before began
	lostAt      time.Duration // departure of the latest packet found lost; 0 is none
	cutAt       time.Duration // when the latest cut was
	calm        int           // the last round in which a cut is not followed by another
	crowded     int           // rounds in a row that are
	empty       int           // rounds in a row without a queue
	emptyAt     time.Duration // when the last round with a queue was
}

// fullPipe detects when startup has found the bandwidth.
type fullPipe struct {
	rate    float64
	rounds  int
	limited int
	reached bool
}

// queued reports whether this round's losses were beside a queue. It uses the longest round trip
// beside a loss, and most of the round's samples, because a CPU that is busy for a moment makes
// some longer. On a path with jitter it uses the shortest, since a long one is always near.
func (c *controller) queued() bool {
	r := &c.round
	return c.path.queued(r.least, besideLoss) || !c.path.jitters() && c.crowded() && c.path.queued(r.beside, besideLoss)
}

// crowded reports whether most of this round's samples show a queue; with jitter, whether all do.
func (c *controller) crowded() bool {
	if c.path.jitters() {
		return c.path.queued(c.round.least, besideLoss)
	}
	return c.round.long > c.round.samples/2
}

// endRound evaluates a round trip.
func (c *controller) endRound(now time.Duration, s sample) {
	if c.round.samples > 0 {
		c.path.noise.round(c.round.least, c.round.longest, c.path.minRTT)
		c.path.delays.round(c.round.sum/c.round.samples - c.path.base)
	}
	if c.crowded() {
		c.round.crowded++
	} else {
		c.round.crowded = 0
	}
	if c.full.reached && c.path.detectLonger(now, c.round.least, c.round.most) {
		c.restartLonger(now)
	}
	queued := c.queued()
	if !queued && c.full.reached && c.round.count > c.round.calm && (c.path.policed() || c.round.lostAt > c.round.cutAt) && c.judge.twoRounds.lost >= overwhelmed && c.judge.twoRounds.exceeds(ambientMost, c.judge.ambient()) {
		c.limit(now, c.judge.twoRounds, now-c.round.sinceBefore)
	}
	c.judge.endRound(queued, c.effort())
	if c.turn.phase != probeRTT { // There the window holds the rate down.
		if c.full.look(c.path.bandwidth(), s.limited); c.full.reached && c.turn.phase == startup && s.limited {
			c.path.filled, c.path.filledBefore = false, false // It ended for want of data: see grow.
		}
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
	case c.round.count <= c.round.calm, c.round.lostAt > 0 && c.round.lostAt <= c.round.cutAt: // The losses departed before the last cut.
		c.judge.reset()
	case c.judge.congested():
		c.congestion(now)
	case c.othersBackedOff():
		c.backOff(now)
	default:
		c.bound.grow(now, c.path.trips.smoothed, c.round.most)
		if !c.rivaled && c.round.empty >= emptyRounds && now-c.round.emptyAt > emptyTime {
			enough := gains[up].pacing
			if c.turn.phase == up {
				enough = gains[up].window // The flight is growing, so the rate may too.
			}
			c.bound.recover(c.round.most, c.path.bdp(enough))
		}
	}
	if c.turn.phase == probeRTT {
		c.rival.forget() // The queue will be shorter because of us.
	}
	c.rival.look(now, &c.path, c.round.least)
	c.rivaled = c.rival.present(now)
	if c.rivaled && c.bound.bytes == 0 {
		c.bound.set(now, c.round.most)
	}
	if !c.rivaled && c.bound.bytes > 4*c.path.bdp(1)+16*c.path.packet {
		c.bound.bytes = 0 // It limits nothing.
	}
}

// restartLonger starts over on a path that has become longer: the losses were not beside a queue,
// and there was no reason to back off.
func (c *controller) restartLonger(now time.Duration) {
	c.judge.noQueue, c.bound.bytes, c.full = c.judge.all, 0, fullPipe{}
	c.judge.forgetWaits()
	c.judge.reset()
	c.rival.gone()
	c.rival.forget()
	c.enter(now, startup)
}

// othersBackedOff reports whether others have backed off in a round, as far as round trips show.
func (c *controller) othersBackedOff() bool {
	noise := time.Duration(0)
	if c.path.jitters() {
		if !c.judge.queueDrops() {
			return false
		}
		noise = c.path.noise.wide / 2
	}
	return c.rivaled && c.turn.phase != probeRTT &&
		c.round.samples > 0 && c.rival.yields(c.round.sum/c.round.samples, c.path.base, noise, c.round.crowded)
}

// congestion responds to congestion loss.
func (c *controller) congestion(now time.Duration) {
	if c.effort() == steady && c.round.lostAt > c.turn.steadyAt && (c.round.crowded >= crowdRounds || c.judge.queueDrops()) {
		c.rival.seen(now) // We send no more than the path delivers, so others probably do.
	}
	c.backOff(now)
}

// backOff reduces the data in flight.
func (c *controller) backOff(now time.Duration) {
	flight := max(c.round.most, c.round.before)
	if c.turn.phase == probeRTT { // Little is in flight, but not because of the window.
		flight = max(flight, c.bound.bytes)
	}
	c.bound.cut(now, flight)
	c.judge.reset()
	c.round.calm, c.round.cutAt = c.round.count+calmRounds, now
	c.rival.forget()
	if c.turn.phase == up {
		c.enter(now, down)
	}
}

// look records a round trip.
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
