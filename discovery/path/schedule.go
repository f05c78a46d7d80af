package path

import (
	"fmt"
	"slices"
	"time"
)

// Liveness. A path with recent traffic is probed every activeEvery. An unanswered probe is repeated
// every 300 to 500 ms, and the path becomes suspect distrustAfter the first of them: 3 s + 3.5 s =
// 6.5 s after the last answer. With 10 % loss each way an exchange fails with p = 0.19, and at
// least seven failures in a row are needed: 0.19⁷ ≈ 10⁻⁵.
const (
	activeEvery   = 3 * time.Second
	busyEvery     = time.Second      // with traffic: shows the peer that our address changed
	busyFor       = 5 * time.Second  // since traffic is reported every second or two
	idleAfter     = 45 * time.Second // without traffic a path counts as idle
	distrustAfter = 3500 * time.Millisecond
	giveUpAfter   = 10 * time.Second // a suspect path fails this long after the first unanswered probe
	repeatMin     = 300 * time.Millisecond
	repeatMax     = 500 * time.Millisecond
	// doubtAt and alarmAt are numbers of unanswered probes. At the first, the reserves are probed.
	// At the second, failed pairs are probed as well, so that a proven path is ready when the
	// selected one becomes suspect, and the allocations are checked.
	doubtAt, alarmAt = 3, 5
	// askedAgain is how close together two probes from the peer on one path must be to show that it
	// does not hear our answers.
	askedAgain = 2 * time.Second
)

// While idle, one exchange every keepalive (20 ± 3 s) serves both sides and the NATs between them.
// The side that was probed probes next, and the one that probed waits turnAfter times the interval,
// so that each gets its own proof every other time. 4,320 exchanges a day, of IP packets of 108 and
// 84 bytes, are 0.83 MB. Over IPv6 they are 128 and 116 bytes, so the interval is 23 s: 0.92 MB, or
// 0.93 MB in beats, whose longest turn is shorter. 23 s × 1.1, a second of spread and distrustAfter
// still add up to less than the 30 s within which a dead path is noticed. All this is for the
// default. Someone who sets another value knows a NAT or a firewall with a short memory: then it is
// the maximum between two exchanges, and is not stretched.
const (
	jitter     = 0.15
	turnAfter  = 1.2
	turnSpread = 0.05

	ipv6Stretch   = 1.15
	ipv6Jitter    = 0.1
	ipv6TurnAfter = 1.1
	// longestTurn is more than any turn takes, 1.15 × 1.1. The peer probes every other time, so it
	// has not left a path that was silent for less than two turns.
	longestTurn = 1.3
	// 0.8 × (turnAfter + turnSpread) = 1.
	configuredStretch = 0.8

	// Beat is the interval at which idle paths are probed if there is an [Options.Epoch]. Waking up
	// costs more than a probe: a gateway with 1,000 idle peers woke a hundred times a second, which
	// took a quarter of the processor time (bench/README, many peers).
	Beat = 500 * time.Millisecond
	// shortRest is the shortest keepalive that uses beats.
	shortRest = 10 * Beat
	// standbyEvery is how often a reserve path is probed while there is traffic.
	standbyEvery = 25 * time.Second
	sampleEvery  = 300 * time.Millisecond // for the first gainSamples of a path
)

// Rounds of probes, as offsets. answerWithin is the wait after the last.
var (
	firstRound = []time.Duration{
		0, 200 * time.Millisecond, 500 * time.Millisecond,
		1 * time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second,
		6 * time.Second, 7 * time.Second, 8 * time.Second, 9 * time.Second,
	}
	laterRound = firstRound[:4]
	slowRound  = firstRound[:1]
)

const answerWithin = time.Second

// Retries of failed pairs.
var (
	// aloneRetries apply while no path is known to work.
	aloneRetries = []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second}
	// betterRetries apply to a better class of path than the selected one.
	betterRetries = []time.Duration{5 * time.Second, time.Minute, 5 * time.Minute}
)

const (
	otherRetry = 5 * time.Minute // for pairs that would be no improvement
	// While idle, pairs that have failed often are probed one at a time, one every slowEvery.
	slowEvery = 5 * time.Minute
	// wakeRetry is how long ago a pair must have been tried to be tried again when traffic ends
	// idleness.
	wakeRetry = time.Minute
	// settled is how long a path must work for its earlier failures to be forgotten.
	settled = time.Minute
)

// startRound starts a round of probes, unless the tunnel's silence bars the pair.
func (m *Machine) startRound(p *pair, reason string) {
	plan := laterRound
	if p.failures == 0 {
		plan = firstRound
	}
	m.startPlan(p, plan, reason)
}

func (m *Machine) startPlan(p *pair, plan []time.Duration, reason string) {
	if p.barred(m.now) {
		return
	}
	m.move(p, Probing, reason)
	p.plan, p.asked, p.due = plan, 0, m.now
}

// judged reports whether unanswered probes count against a pair. They do not if only handshakes
// ever proved it and the peer has never answered a probe.
func (m *Machine) judged(p *pair) bool { return m.probing || !p.answered.IsZero() }

// age applies the passage of time to a pair.
func (m *Machine) age(p *pair) {
	unanswered := func() string {
		return fmt.Sprintf("no answer to %s in %s", count(p.asked, "probe"), roughly(m.now.Sub(p.askedAt)))
	}
	switch p.state {
	case Probing:
		if p.asked >= len(p.plan) && p.due.IsZero() && m.at(p.sentAt.Add(answerWithin)) {
			m.move(p, Failed, unanswered())
		}
	case Valid, Selected:
		if p.asked > 0 && m.judged(p) && m.at(p.askedAt.Add(distrustAfter)) {
			m.move(p, Suspect, unanswered())
		}
		if p.failures > 0 && m.at(p.since.Add(settled)) {
			p.failures = 0
		}
	case Suspect:
		if p.asked > 0 && m.judged(p) && m.at(p.askedAt.Add(giveUpAfter)) {
			m.move(p, Failed, unanswered())
		}
	case Frozen, Failed:
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// afterProbe schedules the next probe of a pair that was just probed.
func (m *Machine) afterProbe(p *pair) {
	if p.asked == 0 {
		p.began, p.askedAt = m.now, m.now
	}
	p.asked++
	p.sentAt = m.now
	m.doubtful = m.doubtful || p == m.sel && p.class == classRelayed && p.asked == alarmAt
	switch {
	case p.state == Probing && p.asked < len(p.plan):
		p.due = later(p.began.Add(p.plan[p.asked]), m.now.Add(pace))
	case p.state == Probing:
		p.due = time.Time{}
	case m.judged(p):
		p.due = m.now.Add(p.repeat())
	case p.asked < len(firstRound):
		p.due = later(p.began.Add(firstRound[p.asked]), m.now.Add(pace))
	default:
		p.asked, p.due = 0, m.now.Add(otherRetry)
	}
}

// repeat is when an unanswered probe is repeated.
func (p *pair) repeat() time.Duration {
	if p.rtt == 0 {
		return repeatMax
	}
	return min(max(p.rtt*3/2, repeatMin), repeatMax)
}

// afterAnswer schedules the next probe of a pair that has just answered.
func (m *Machine) afterAnswer(p *pair) {
	p.asked = 0
	switch {
	case p.answers == 1:
		p.due = m.now // a better class is selected after two
	case p.answers < gainSamples:
		p.due = m.now.Add(sampleEvery)
	case p == m.sel:
		p.due = m.selectedDue()
	case m.idle():
		p.due = time.Time{}
	default:
		p.due = m.now.Add(standbyEvery)
	}
}

// selectedDue is when to probe the selected path after an answer.
func (m *Machine) selectedDue() time.Time {
	if m.idle() {
		stretch := m.stretch(m.sel)
		return m.restFor(stretch*m.turnAfter(stretch) + min(stretch, 1)*turnSpread*m.o.Rand.Float64())
	}
	every := activeEvery
	if m.now.Sub(m.traffic) <= busyFor {
		every = busyEvery
	}
	return m.now.Add(min(every, m.o.Keepalive))
}

// turn is when to probe an idle path after the peer has done so. It is before the peer, which rests
// in its own beats, probes again: once both probe at the same time they keep doing so.
func (m *Machine) turn(p *pair) time.Time {
	stretch, spread := m.stretch(p), jitter
	if stretch == ipv6Stretch {
		spread = ipv6Jitter
	}
	least, most := 1-spread, 1+spread
	if m.beats() {
		beat := float64(Beat) / (stretch * float64(m.o.Keepalive))
		least += beat / 2 // compensates for the rounding
		most = min(most, m.turnAfter(stretch)-beat)
	}
	return m.restFor(stretch * (least + (most-least)*m.o.Rand.Float64()))
}

// turnAfter is how many intervals a path rests if the peer was the last to be probed.
func (m *Machine) turnAfter(stretch float64) float64 {
	if stretch == ipv6Stretch {
		return ipv6TurnAfter
	}
	return turnAfter
}

// restFor is when an idle path has rested for so many keepalives, or the beat before.
func (m *Machine) restFor(keepalives float64) time.Time {
	t := m.now.Add(time.Duration(float64(m.o.Keepalive) * keepalives))
	if m.beats() {
		t = t.Add(-(t.Sub(m.o.Epoch) % Beat))
	}
	return t
}

// beats reports whether idle paths are probed in beats.
func (m *Machine) beats() bool { return !m.o.Epoch.IsZero() && m.o.Keepalive >= shortRest }

// stretch is the factor by which an idle path's rest differs from the keepalive.
func (m *Machine) stretch(p *pair) float64 {
	switch {
	case m.o.Keepalive != defaultKeepalive:
		return configuredStretch
	case p.isIPv6():
		return ipv6Stretch
	}
	return 1
}

// isIPv6 reports whether the pair's packets use IPv6 all the way.
func (p *pair) isIPv6() bool { return p.path.Via == "" && p.path.Remote.Addr().Is6() }

// askedOver reacts to a probe from the peer. The path that it came on is tried at once, and the
// exchange keeps an idle path alive as well as ours does.
func (m *Machine) askedOver(p *pair, again bool) {
	switch p.state {
	case Frozen: // thaw takes into account that it was heard
	case Probing:
		if p.due.IsZero() {
			p.asked = 0
		}
		p.due = sooner(p.due, later(m.now, p.sentAt.Add(laterRound[1])))
	case Failed:
		m.startRound(p, "the peer probes it")
	case Suspect:
		p.due = m.now
	case Valid, Selected:
		switch {
		case again && m.now.Sub(p.answered) > askedAgain && p.asked == 0:
			p.due = m.now
		case p == m.sel && p.asked == 0 && p.answers >= gainSamples && m.idle():
			p.due = m.turn(p)
		case p != m.sel && p.asked == 0 && m.now.Sub(p.answered) > freshFor:
			p.due = m.now // the peer may have selected it
		}
	}
}

// keepUp probes the reserves while the selected path is in doubt.
func (m *Machine) keepUp() {
	s := m.sel
	if s == nil || s.asked < doubtAt && s.state == Selected || !m.judged(s) {
		return
	}
	for _, p := range m.pairs {
		switch {
		case p == s || p.sentAt.After(s.askedAt) && p.sentAt.After(s.since):
		case p.works() && p.asked == 0:
			p.due = m.now
		case p.state == Failed && (s.asked >= alarmAt || s.state == Suspect):
			m.startRound(p, "the selected path is in doubt")
		}
	}
}

// reviveAll probes every pair that may be tried now.
func (m *Machine) reviveAll(why string) {
	for _, p := range m.pairs {
		switch p.state {
		case Failed:
			p.failures = 0
			m.startRound(p, why)
		case Probing:
			p.due = m.now
			if p.asked >= len(p.plan) {
				p.asked = 0
			}
		case Valid, Suspect:
			p.due = m.now
		case Frozen, Selected:
		}
	}
}

// wakeUp ends idleness: a packet was sent.
func (m *Machine) wakeUp() {
	if s := m.sel; s != nil && s.asked == 0 {
		s.due = sooner(s.due, later(m.now, s.answered.Add(activeEvery)))
	}
	for _, p := range m.pairs {
		switch {
		case p == m.sel:
		case p.works() && m.now.Sub(p.answered) > standbyEvery:
			p.due = m.now
		case p.state == Failed && m.sel != nil && p.kind(m.sel) < 0 && m.now.Sub(p.tried) > wakeRetry:
			m.startRound(p, "the tunnel carries traffic again")
		}
	}
}

// retryAt is when a failed pair is tried again.
func (m *Machine) retryAt(p *pair) time.Time {
	step := func(table []time.Duration) time.Time {
		return p.tried.Add(table[min(max(p.failures-1, 0), len(table)-1)])
	}
	switch {
	case p.barredUntil.After(p.tried):
		return p.barredUntil
	case m.sel == nil:
		return step(aloneRetries)
	case m.idle() && p.failures >= len(betterRetries):
		return later(m.slow, m.now)
	case p.kind(m.sel) < 0:
		return step(betterRetries)
	default:
		return p.tried.Add(otherRetry)
	}
}

// retry tries what failed before.
func (m *Machine) retry() {
	var slow []*pair
	for _, p := range m.pairs {
		switch {
		case p.state != Failed:
		case p.barred(m.now):
			m.at(p.barredUntil)
		case m.sel != nil && m.idle() && p.failures >= len(betterRetries):
			slow = append(slow, p)
		case m.at(m.retryAt(p)):
			m.startRound(p, "tried again")
		}
	}
	if len(slow) == 0 {
		m.slow = m.now.Add(slowEvery)
		return
	}
	if !m.at(m.slow) {
		return
	}
	m.slow = m.now.Add(slowEvery)
	longest := slices.MinFunc(slow, func(a, b *pair) int { return a.tried.Compare(b.tried) })
	m.startPlan(longest, slowRound, "tried again")
}
