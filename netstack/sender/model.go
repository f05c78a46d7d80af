package sender

import "time"

const (
	// minRTTKept is how long the shortest round trip is believed (draft-ietf-ccwg-bbr,
	// MinRTTFilterLen).
	minRTTKept = 10 * time.Second
	// baseKept is how long the shortest round trip is kept with which a queue of others is
	// told from a longer path: longer, because where others keep a queue minRTT is soon
	// the one with the queue.
	baseKept = 30 * time.Second
	// leastQueue is the least delay that is taken for a queue: below are timers and busy
	// processors.
	leastQueue = time.Millisecond
	// firstPackets is what is in flight before anything is known (RFC 6928).
	firstPackets = 10
)

// pathModel is what BBR knows of the path (draft-ietf-ccwg-bbr): what it delivers at best,
// how long it takes at least, and in what lumps acknowledgements come.
type pathModel struct {
	packet int // bytes of a full segment

	// The greatest rates, bytes per second, of this probing cycle and the one before.
	rate, rateBefore float64
	// Whether one of these cycles' samples was of a sender that had more to send: else the rates are
	// what there was to send, and the path may deliver far more.
	filled, filledBefore bool
	// What a rate limiter, or a short queue, let through of the last probe for more, 0 if there seems to
	// be none: a limiter's bucket lets single samples be far higher, and it has no queue.
	limit  float64
	bucket bool

	minRTT   time.Duration // 0 is none measured
	minRTTAt time.Duration
	base     time.Duration // as minRTT, for longer
	baseAt   time.Duration
	level    level
	longerAt time.Duration // when it was last found to have become longer; 0 is never
	trips    roundTrips

	lumps lumps
	noise noise
}

// newPathModel begins with what timers should take for the round trip until one is measured.
// It isn't believed: a handshake may have waited for an upstream.
func newPathModel(now time.Duration, guess roundTrips, packet int) pathModel {
	m := pathModel{packet: packet, trips: guess}
	m.lumps.since = now
	return m
}

// shortest is the shortest round trip, or the guess.
func (m *pathModel) shortest() time.Duration {
	if m.minRTT == 0 {
		return m.trips.smoothed
	}
	return m.minRTT
}

// bandwidth is the greatest rate, bytes per second; 0 is unknown.
func (m *pathModel) bandwidth() float64 {
	if rate := max(m.rate, m.rateBefore); m.limit == 0 || rate < m.limit {
		return rate
	}
	return m.limit
}

// policed reports whether there seems to be a rate limiter.
func (m *pathModel) policed() bool { return m.limit > 0 && m.bucket }

// nextCycle forgets what is older than a probing cycle.
func (m *pathModel) nextCycle() {
	m.rateBefore, m.rate = m.rate, 0
	m.filledBefore, m.filled = m.filled, false
}

// known reports whether the bandwidth is the path's, and not that of what there was to send.
func (m *pathModel) known() bool { return m.filled || m.filledBefore }

// bdp is gain times what the path holds without a queue, in bytes.
func (m *pathModel) bdp(gain float64) int {
	if m.bandwidth() == 0 {
		return int(gain * firstPackets * float64(m.packet))
	}
	return int(gain * m.bandwidth() * m.shortest().Seconds())
}

// queued reports whether a round trip of such a length shows a queue, in the share of the
// base that part divides it into.
func (m *pathModel) queued(rtt time.Duration, part time.Duration) bool {
	return rtt > m.base+max(m.base/part, leastQueue, noiseMargin*m.noise.mean)
}

// update takes in a sample.
func (m *pathModel) update(now time.Duration, s sample) {
	if s.rate > 0 && (!s.limited || s.rate >= m.bandwidth()) {
		m.rate = max(m.rate, s.rate)
		m.filled = m.filled || !s.limited
	}
	m.lumps.add(now, m.bandwidth(), s.newly)
	if s.rtt == 0 {
		return
	}
	if m.minRTT == 0 {
		m.trips = roundTrips{}
		m.minRTT, m.minRTTAt, m.base, m.baseAt = s.rtt, now, s.rtt, now
	}
	m.trips.add(s.rtt)
	m.noise.add(now, s.rtt, m.minRTT)
	if s.rtt <= m.minRTT || now > m.minRTTAt+minRTTKept {
		m.minRTT, m.minRTTAt = s.rtt, now
	}
	if m.minRTT < m.base || now > m.baseAt+baseKept {
		m.base, m.baseAt = m.minRTT, now
	}
}

// level tells a path that has become longer from one on which others keep a queue. Theirs grows and
// shrinks, and ours does with what we have in flight.
type level struct {
	low, high   time.Duration // of the shortest round trips of rounds since then
	least, most int           // in flight
	since       time.Duration
	rounds      int
}

const (
	// levelTime and levelRounds are for how long round trips must have stayed the same.
	levelTime   = 3 * time.Second
	levelRounds = 10
)

// settle takes in a round's shortest round trip and what was in flight. It reports whether the path has
// become longer, which it can once in baseKept.
func (m *pathModel) settle(now, rtt time.Duration, flight int) bool {
	if rtt == 0 || !m.queued(rtt, besideLoss) {
		m.level = level{}
		return false
	}
	l := &m.level
	low, high := min(l.low, rtt), max(l.high, rtt)
	if l.rounds == 0 || high > low+max(low/besideLoss, leastQueue, noiseMargin*m.noise.mean) {
		low, high = rtt, rtt
		*l = level{least: flight, most: flight, since: now}
	}
	l.low, l.high, l.least, l.most = low, high, min(l.least, flight), max(l.most, flight)
	l.rounds++
	again := m.longerAt > 0 && now < m.longerAt+baseKept // a receiver can delay its acknowledgements step by step
	if again || l.rounds < levelRounds || now-l.since < levelTime || l.least > l.most/2 {
		return false
	}
	m.longerAt = now
	m.minRTT, m.minRTTAt, m.base, m.baseAt = low, now, low, now
	return true
}

// lumps measures by how much acknowledgements run ahead of the path's rate, because they
// are delayed and come together (draft-ietf-ccwg-bbr): so much more must be in flight.
type lumps struct {
	since         time.Duration
	acked         float64 // bytes since then
	now, before   float64 // the greatest excess of this window and of the one before
	windowStarted time.Duration
}

// lumpsKept is how long an excess counts; the draft has ten round trips.
const lumpsKept = time.Second

func (l *lumps) add(now time.Duration, bandwidth float64, acked int) {
	expected := bandwidth * (now - l.since).Seconds()
	if l.acked <= expected {
		l.since, l.acked, expected = now, 0, 0
	}
	l.acked += float64(acked)
	if now > l.windowStarted+lumpsKept {
		l.before, l.now, l.windowStarted = l.now, 0, now
	}
	l.now = max(l.now, l.acked-expected)
}

// excess is in bytes.
func (l *lumps) excess() int { return int(max(l.now, l.before)) }

// noiseMargin is how many times the noise a delay must be to be taken for a queue: jitter
// that is spread evenly has a mean difference of a third of its range.
const noiseMargin = 3

// noiseLeast is how much of it there may be on a path without jitter.
const noiseLeast = 300 * time.Microsecond

// noise measures by how much round trips differ within a fraction of one. A queue grows and
// shrinks in round trips; jitter of radio links doesn't.
type noise struct {
	mean time.Duration
	at   time.Duration
	rtt  time.Duration
}

func (n *noise) add(now, rtt, minRTT time.Duration) {
	if now-n.at < max(minRTT/8, time.Millisecond) {
		return
	}
	if n.at > 0 {
		// A sender at 1.25 times the bandwidth makes the queue longer by a quarter of the time.
		differ := max((rtt-n.rtt).Abs()-(now-n.at)/4, 0)
		n.mean += (min(differ, minRTT) - n.mean) / 16
	}
	n.at, n.rtt = now, rtt
}
