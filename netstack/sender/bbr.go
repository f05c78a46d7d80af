package sender

import "time"

// phase is a phase of BBR (draft-ietf-ccwg-bbr):
//
//	startup -> drain -> down -> cruise -> refill -> up -> down …
//
// and from any phase to probeRTT and back to down, or to startup if that wasn't over.
type phase uint8

const (
	startup  phase = iota // grow exponentially until the bandwidth stops growing
	drain                 // empty the queue that startup made
	down                  // send less than the path delivers, so that the queue drains
	cruise                // send what the path delivers
	refill                // for a round trip, so that up starts with a full path
	up                    // send more, to see whether the path delivers it
	probeRTT              // send little, to see the path without a queue
)

// gains are a phase's pacing and window gains (draft-ietf-ccwg-bbr).
var gains = [...]struct{ pacing, window float64 }{
	startup:  {2.77, 2.77},
	drain:    {0.5, 2.77},
	down:     {0.9, 2},
	cruise:   {1, 2},
	refill:   {1, 2},
	up:       {1.25, 2.25},
	probeRTT: {1, 0.5},
}

const (
	// pacingMargin is by how much the pacing rate is below the bandwidth, so that no standing queue
	// forms (draft-ietf-ccwg-bbr).
	pacingMargin = 0.01
	// probeEvery and probeSpread are the minimum and the random part of the time between bandwidth
	// probes (draft-ietf-ccwg-bbr). probeRounds is its maximum in round trips: by then flows of
	// CUBIC and Reno have recovered on a small path.
	probeEvery  = 2 * time.Second
	probeSpread = time.Second
	probeRounds = 63
	// rttEvery is the interval between RTT probes, and rttTakes their duration
	// (draft-ietf-ccwg-bbr).
	rttEvery = 5 * time.Second
	rttTakes = 200 * time.Millisecond
	// rttRivaled is the interval beside other flows that keep a queue. That queue does not drain in
	// a probe, unless they probe at the same time.
	rttRivaled = 10 * time.Second
	// mostFlight bounds the data in flight, in BDPs, because it must be kept in memory. mostTogether
	// bounds what is in flight beyond that because acknowledgements arrive together, as time (Linux
	// tcp_bbr.c, bbr_extra_acked_max_us). On short paths it is many round trips: without it, a flow
	// waits for its acknowledgements, measures a lower rate, sends less, and so on.
	mostFlight   = 3
	mostTogether = 100 * time.Millisecond
	// aggregate is how much may be sent in one burst, as time.
	aggregate = time.Millisecond
)

// controller is BBR version 3 (draft-ietf-ccwg-bbr) with two differences. Loss counts only as far
// as it exceeds the path's ambient loss (lossJudge). And where congestion loss bounds the data in
// flight, the bound grows like CUBIC's window (bound). That window alone applies where other flows
// keep a queue (rivalry). controller has no clock and knows no packets.
type controller struct {
	path    pathModel
	judge   lossJudge
	bound   bound
	rival   rivalry
	full    fullPipe
	turn    turn
	round   round
	rivaled bool // rival.present at the last round's end
	retry   bool // a retransmission timeout occurred, and nothing was delivered since
}

// turn is the current phase.
type turn struct {
	phase    phase
	since    time.Duration
	round    int           // when it began
	probeAt  time.Duration // when to probe for more
	probedAt int           // the round of the last probe
	steadyAt time.Duration // since when no more has been sent than the path delivers
	rttDone  time.Duration // end of probeRTT; 0: the flight is still above the window
	rttAt    time.Duration // when minRTT was last probed, or seen without a probe
	peak     float64       // bandwidth in the last round of up
	seed     uint32
}

func newController(now time.Duration, guess roundTrips, packet int) controller {
	c := controller{path: newPathModel(now, guess, packet), bound: bound{packet: packet}}
	c.turn = turn{since: now, rttAt: now, seed: uint32(now)*2654435761 | 1}
	return c
}

// restart measures the rate from scratch and keeps what doesn't change soon.
func (c *controller) restart(now time.Duration) controller {
	next := newController(now, c.path.trips, c.path.packet)
	next.judge = c.judge
	next.judge.forgetWaits()
	next.path.minRTT, next.path.minRTTAt, next.path.base, next.path.baseAt = c.path.minRTT, c.path.minRTTAt, c.path.base, c.path.baseAt
	return next
}

// random returns a duration below n by Marsaglia's xorshift. It only has to differ between flows.
func (t *turn) random(n time.Duration) time.Duration {
	t.seed ^= t.seed << 13
	t.seed ^= t.seed >> 17
	t.seed ^= t.seed << 5
	return time.Duration(uint64(t.seed) * uint64(n) >> 32)
}

// pacing returns the rate to send at, in bytes per second.
func (c *controller) pacing() float64 {
	first := gains[startup].pacing * firstPackets * float64(c.path.packet) / max(c.path.trips.smoothed, time.Millisecond).Seconds()
	rate := c.path.bandwidth() * gains[c.turn.phase].pacing * (1 - pacingMargin)
	if !c.full.reached || !c.path.known() {
		rate = max(rate, first) // Thousands of small messages would wait for each other.
	}
	if c.rivaled && c.turn.phase != probeRTT {
		rate = max(rate, 1.2*float64(c.bound.bytes)/max(c.path.trips.smoothed, time.Millisecond).Seconds())
	}
	return max(rate, float64(c.path.packet))
}

// window returns how much may be in flight, in bytes.
func (c *controller) window() int {
	least := minWindow * c.path.packet
	switch {
	case c.retry:
		return least
	case c.turn.phase == probeRTT:
		return max(c.path.bdp(gains[probeRTT].window), least)
	case c.rivaled:
		return max(c.bound.bytes, least)
	}
	w := c.path.bdp(gains[c.turn.phase].window) + c.burst()
	if c.full.reached {
		together := max(c.path.bdp(1), int(c.path.bandwidth()*mostTogether.Seconds()))
		w = min(w, max(c.path.bdp(mostFlight), firstPackets*c.path.packet)) + min(c.path.aggregation.excess(), together)
	} else {
		w = max(w, firstPackets*c.path.packet)
	}
	if c.bound.bytes > 0 {
		w = min(w, c.bound.bytes)
	}
	return max(w, least)
}

// burst returns how much is sent and acknowledged at once, in bytes.
func (c *controller) burst() int {
	return 3 * (int(c.path.bandwidth()*aggregate.Seconds()) + 2*c.path.packet)
}

// resumes is called when something is sent while nothing is in flight. The path is empty then, so
// the next RTT probe can wait (draft-ietf-ccwg-bbr, idle restart).
func (c *controller) resumes(now time.Duration) { c.turn.rttAt = now }

// timeout handles a retransmission timeout: little is sent until something arrives. The packets it
// marked as lost are no sign of congestion: the path was interrupted.
func (c *controller) timeout() { c.retry = true }

// count records what was found lost and what was delivered, in bytes.
func (c *controller) count(found losses, delivered int) {
	packet := float64(c.path.packet)
	c.judge.add(tally{lost: float64(found.lost) / packet, all: float64(found.lost+delivered) / packet})
	c.judge.roundByWait.add(found.waits.scaled(1 / packet))
	c.round.lostAt = max(c.round.lostAt, found.departed)
}

// effort returns how much was sent, compared with what the path delivers, at the time when the
// packets departed that are now found lost.
func (c *controller) effort() effort {
	switch p := c.turn.phase; {
	case !c.full.reached || p == drain || c.round.count <= c.round.calm:
		return unclear
	case p == cruise || p == refill:
		return steady
	default:
		return varied
	}
}

// onAck handles an acknowledgement.
func (c *controller) onAck(now time.Duration, s sample) {
	if s.newly > 0 {
		c.retry = false
	}
	if s.rtt > 0 && s.rtt <= c.path.shortest() {
		c.turn.rttAt = now
	}
	before, known := c.path.base, c.path.known()
	c.path.update(now, s)
	if !known && c.path.known() && c.full.reached {
		c.grow(now)
	}
	if before-c.path.base > leastQueue {
		c.judge.noQueue = tally{} // These samples were taken with a queue after all.
	}
	if (before - c.path.base).Abs() > leastQueue {
		c.judge.forgetWaits()
	}
	c.count(s.losses, s.newly)
	r := &c.round
	r.most = max(r.most, s.flight+s.newly+max(s.lost, 0))
	if s.lost > 0 {
		r.beside = max(r.beside, s.rtt)
	}
	if s.rtt > 0 && !s.tail {
		r.longest = max(r.longest, s.rtt)
		r.sum += s.rtt
		r.samples++
		if c.path.queued(s.rtt, besideLoss) {
			r.long++
		}
	}
	if s.rtt > 0 && (r.least == 0 || s.rtt < r.least) {
		r.least = s.rtt
	}
	ends := s.newly > 0 && s.prior >= r.ends
	if ends {
		r.ends = s.delivered
		r.count++
		c.endRound(now, s)
	}
	c.advance(now, s, ends)
	if ends {
		c.judge.nextRound()
		r.before, r.most = r.most, 0
		r.longest, r.least, r.beside, r.lostAt, r.sum, r.samples, r.long, r.sinceBefore, r.since = 0, 0, 0, 0, 0, 0, 0, r.since, now
	}
}

// grow begins to grow exponentially again: the bandwidth so far was that of what there was to send.
func (c *controller) grow(now time.Duration) {
	c.full = fullPipe{}
	if c.turn.phase != probeRTT { // After which comes startup.
		c.enter(now, startup)
	}
}

// enter begins a phase.
func (c *controller) enter(now time.Duration, p phase) {
	t := &c.turn
	switch p {
	case down:
		t.probeAt = now + probeEvery + t.random(probeSpread)
		t.probedAt = c.round.count
		c.path.nextCycle()
	case cruise:
		t.steadyAt = now
	case up:
		t.peak = c.path.bandwidth()
		c.judge.probe = tally{}
	case probeRTT:
		t.rttDone = 0
	}
	t.phase, t.since, t.round = p, now, c.round.count
}

// advance enters the next phase when it is time.
func (c *controller) advance(now time.Duration, s sample, roundEnds bool) {
	t := &c.turn
	bdp := c.path.bdp(1)
	switch t.phase {
	case startup:
		if c.full.reached {
			c.enter(now, drain)
		}
	case drain:
		if s.flight <= bdp {
			c.enter(now, down)
		}
	case down, cruise:
		rounds := min(probeRounds, bdp/c.path.packet)
		switch {
		case now >= t.probeAt || c.round.count-t.probedAt >= max(rounds, minWindow):
			c.enter(now, refill)
		case t.phase == down && s.flight <= bdp && now-t.since > c.path.shortest():
			c.enter(now, cruise)
		}
	case refill:
		if roundEnds && c.round.count > t.round {
			c.enter(now, up)
		}
	case up:
		c.probeUp(now, s, roundEnds)
	case probeRTT:
		c.probeMinRTT(now, s)
	}
	every := rttEvery
	if c.rivaled {
		every = rttRivaled
	}
	if t.phase != probeRTT && now > t.rttAt+every && s.rtt > 0 {
		c.enter(now, probeRTT)
	}
}

// probeUp probes for more bandwidth until there is no more.
func (c *controller) probeUp(now time.Duration, s sample, roundEnds bool) {
	t := &c.turn
	if took := now - t.since; took > c.path.shortest() && c.judge.refused() {
		c.limit(now, c.judge.probe, took)
		c.enter(now, down)
		return
	}
	if !roundEnds || c.round.count <= t.round+1 {
		return
	}
	if rate := c.path.bandwidth(); rate > 1.1*t.peak {
		t.peak = rate
		return
	}
	if s.flight+s.newly >= c.path.bdp(gains[up].pacing) || s.flight+s.newly >= c.window()*7/8 || c.round.count > t.round+4 {
		c.path.limit = 0
		c.enter(now, down)
	}
}

// limit records the rate that a rate limiter or a short queue lets through, from what it delivered
// in a time. What was learned as ambient loss may have been its drops.
func (c *controller) limit(now time.Duration, t tally, took time.Duration) {
	c.path.bucket = !c.path.queued(c.round.beside, besideLoss)
	c.path.limit = t.delivered() * float64(c.path.packet) / max(took, time.Millisecond).Seconds()
	c.judge = lossJudge{lost: c.judge.lost, whole: c.judge.whole}
	c.round.calm, c.round.cutAt = c.round.count+calmRounds, now
}

// probeMinRTT keeps the path nearly empty for a while.
func (c *controller) probeMinRTT(now time.Duration, s sample) {
	t := &c.turn
	switch {
	case t.rttDone == 0:
		if s.flight <= c.window() {
			t.rttDone, t.round = now+rttTakes, c.round.count
		}
	case now > t.rttDone && c.round.count > t.round:
		t.rttAt = now
		if c.round.least > 0 && !c.path.queued(c.round.least, drained) {
			c.rival.gone()
			c.rivaled = false
		}
		if c.full.reached {
			c.enter(now, down)
		} else {
			c.enter(now, startup)
		}
	}
}
