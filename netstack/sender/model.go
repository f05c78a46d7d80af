package sender

import "time"

const (
	// minRTTKept is how long the shortest round trip is valid (draft-ietf-ccwg-bbr,
	// MinRTTFilterLen).
	minRTTKept = 10 * time.Second
	// baseKept is how long the base round trip is valid, which distinguishes a queue of others from
	// a longer path. It is longer than minRTTKept, because where others keep a queue minRTT soon
	// includes that queue.
	baseKept = 30 * time.Second
	// leastQueue is the least delay that counts as a queue. Smaller ones come from timers and busy
	// CPUs.
	leastQueue = time.Millisecond
	// firstPackets is the initial window, in packets (RFC 6928).
	firstPackets = 10
)

// pathModel is what BBR knows of the path (draft-ietf-ccwg-bbr): its maximum rate, its minimum
// round trip, and how acknowledgements are aggregated.
type pathModel struct {
	packet int // bytes of a full segment

	// The maximum rates of this probing cycle and the one before, in bytes per second.
	rate, rateBefore float64
	// Whether any sample of these cycles was not limited by the application. If none was, the path
	// may deliver far more than the rates.
	filled, filledBefore bool
	// What a rate limiter or a short queue let through in the last bandwidth probe, 0 if there
	// seems to be none. A limiter's token bucket makes single samples far higher, and it has no
	// queue.
	limit  float64
	bucket bool

	minRTT   time.Duration // 0 is none measured
	minRTTAt time.Duration
	base     time.Duration // like minRTT, but kept longer
	baseAt   time.Duration
	level    level
	longerAt time.Duration // when it was last found to have become longer; 0 is never
	trips    roundTrips

	aggregation aggregation
	noise       noise
	delays      delays
}

// newPathModel starts with the round trip that timers use until one is measured. It is not used as
// minRTT, because a handshake may have waited for an upstream.
func newPathModel(now time.Duration, guess roundTrips, packet int) pathModel {
	m := pathModel{packet: packet, trips: guess}
	m.aggregation.since = now
	return m
}

// shortest returns the shortest round trip, or the guess.
func (m *pathModel) shortest() time.Duration {
	if m.minRTT == 0 {
		return m.trips.smoothed
	}
	return m.minRTT
}

// bandwidth returns the maximum rate, in bytes per second; 0 is unknown.
func (m *pathModel) bandwidth() float64 {
	if rate := max(m.rate, m.rateBefore); m.limit == 0 || rate < m.limit {
		return rate
	}
	return m.limit
}

// policed reports whether there seems to be a rate limiter.
func (m *pathModel) policed() bool { return m.limit > 0 && m.bucket }

// nextCycle forgets samples older than a probing cycle.
func (m *pathModel) nextCycle() {
	m.rateBefore, m.rate = m.rate, 0
	m.filledBefore, m.filled = m.filled, false
}

// known reports whether the bandwidth is the path's, not merely what the application sent.
func (m *pathModel) known() bool { return m.filled || m.filledBefore }

// bdp returns gain times the bandwidth-delay product, in bytes.
func (m *pathModel) bdp(gain float64) int {
	if m.bandwidth() == 0 {
		return int(gain * firstPackets * float64(m.packet))
	}
	return int(gain * m.bandwidth() * m.shortest().Seconds())
}

// queued reports whether a round trip shows a queue: whether it exceeds the base by more than a
// fraction 1/part, and more than jitter explains.
func (m *pathModel) queued(rtt time.Duration, part time.Duration) bool {
	noise := noiseMargin * m.noise.mean
	if m.jitters() {
		noise = max(noise, m.noise.wide*3/4)
	}
	return rtt > m.base+max(m.base/part, leastQueue, noise)
}

// jitters reports whether round trips differ without a queue.
func (m *pathModel) jitters() bool { return m.noise.mean >= noiseLeast }

// update records a sample.
func (m *pathModel) update(now time.Duration, s sample) {
	if s.rate > 0 && (!s.limited || s.rate >= m.bandwidth()) {
		m.rate = max(m.rate, s.rate)
		m.filled = m.filled || !s.limited
	}
	m.aggregation.add(now, m.bandwidth(), s.newly)
	if s.rtt == 0 {
		return
	}
	if m.minRTT == 0 {
		m.trips = roundTrips{}
		m.minRTT, m.minRTTAt, m.base, m.baseAt = s.rtt, now, s.rtt, now
	}
	m.trips.add(s.rtt)
	if !s.tail {
		m.noise.add(now, s.rtt, m.minRTT)
		m.delays.add(trip{now - s.rtt, s.rtt}, m.trips.smoothed)
	}
	if s.rtt <= m.minRTT || now > m.minRTTAt+minRTTKept {
		m.minRTT, m.minRTTAt = s.rtt, now
	}
	if m.minRTT < m.base || now > m.baseAt+baseKept {
		m.base, m.baseAt = m.minRTT, now
	}
}

// level distinguishes a path that has become longer from one on which others keep a queue. Their
// queue grows and shrinks. Ours does too, with our data in flight.
type level struct {
	low, high   time.Duration // of the rounds' shortest round trips since then
	least, most int           // in flight
	since       time.Duration
	rounds      int
}

const (
	// levelTime and levelRounds are how long round trips must have stayed the same.
	levelTime   = 3 * time.Second
	levelRounds = 10
)

// detectLonger records a round's shortest round trip and its data in flight. It reports whether the
// path has become longer, at most once in baseKept.
func (m *pathModel) detectLonger(now, rtt time.Duration, flight int) bool {
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
	again := m.longerAt > 0 && now < m.longerAt+baseKept // a receiver may delay ACKs stepwise
	if again || l.rounds < levelRounds || now-l.since < levelTime || l.least > l.most/2 {
		return false
	}
	m.longerAt = now
	m.minRTT, m.minRTTAt, m.base, m.baseAt = low, now, low, now
	m.delays.excess = 0
	return true
}

// aggregation measures by how much delayed acknowledgements run ahead of the path's rate when they
// arrive together (draft-ietf-ccwg-bbr). That much more must be in flight.
type aggregation struct {
	since         time.Duration
	acked         float64 // bytes since then
	now, before   float64 // the greatest excess of this window and of the one before
	windowStarted time.Duration
}

// aggregationKept is how long an excess counts; the draft uses ten round trips.
const aggregationKept = time.Second

func (l *aggregation) add(now time.Duration, bandwidth float64, acked int) {
	expected := bandwidth * (now - l.since).Seconds()
	if l.acked <= expected {
		l.since, l.acked, expected = now, 0, 0
	}
	l.acked += float64(acked)
	if now > l.windowStarted+aggregationKept {
		l.before, l.now, l.windowStarted = l.now, 0, now
	}
	l.now = max(l.now, l.acked-expected)
}

// excess returns the greatest recent excess, in bytes.
func (l *aggregation) excess() int { return int(max(l.now, l.before)) }

// noiseMargin is how many times the mean noise a delay must be to count as a queue. Evenly
// distributed jitter has a mean difference of a third of its range.
const noiseMargin = 3

// wideMost makes three quarters of it as much as the mean counts for at most.
const wideMost = noiseMargin * 4 / 3

// noiseLeast is the noise below which a path counts as one without jitter.
const noiseLeast = 300 * time.Microsecond

// noise measures by how much round trips differ within a fraction of one. A queue grows and shrinks
// over round trips; jitter of radio links changes faster. Links that send in batches, such as
// Wi-Fi, make packets arrive together that departed one after the other.
type noise struct {
	mean   time.Duration
	at     time.Duration
	rtt    time.Duration
	spread time.Duration // of the round trips that ended together, just after at
	wide   time.Duration // the difference between the shortest and the longest of a round, averaged
}

func (n *noise) add(now, rtt, minRTT time.Duration) {
	together := max(minRTT/8, time.Millisecond)
	if now-n.at < together {
		n.spread = max(n.spread, (rtt - n.rtt).Abs())
		return
	}
	if n.at > 0 {
		// At 1.25 times the bandwidth, the queue grows by a quarter of the elapsed time. What ends
		// together differs by the whole range of a batch, and a sixth of it tells well enough.
		differ := max((rtt-n.rtt).Abs()-(now-n.at)/4, (n.spread-together)/6, 0)
		n.mean += (min(differ, minRTT) - n.mean) / 16
	}
	n.at, n.rtt, n.spread = now, rtt, 0
}

// round adds a round. Jitter that holds for some milliseconds has a small mean difference, since
// most samples are like the one before. Then a round on a short path has few different delays, and
// often none of them is short. With the mean alone, most losses counted as beside a queue. The
// difference counts up to wideMost shortest round trips: after an interruption or a late
// acknowledgement there may be a queue.
func (n *noise) round(least, longest, minRTT time.Duration) {
	n.wide += (min(longest-least, wideMost*minRTT) - n.wide) / 8
}
