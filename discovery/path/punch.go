package path

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Punching opens two NATs towards each other in an order that lets no packet arrive unsolicited.
// The steps are exchanged in-band, on the relay; no clocks are compared.
//
//	proposer                                   answerer
//	3 low-TTL openers (if it opens first)
//	             ── propose ──►
//	                                           3 low-TTL openers
//	             ◄── opened ───                full TTL, if the proposer is open
//	full TTL     ──── go ─────►                full TTL
//
// An opener passes our own NAT and dies before the peer's. A waiting side repeats its openers,
// since an unanswered mapping may live only for seconds. Full-TTL probes end after punchFor. Then
// the pair is silent for longer than a NAT remembers an unanswered flow; otherwise it would stay
// poisoned for ever.
const (
	openers       = 3
	openerEvery   = 100 * time.Millisecond
	reopenEvery   = time.Second
	waitForPeer   = 10 * time.Second // for the answer to a step
	punchFor      = 3 * time.Second
	silence       = 36 * time.Second // conntrack: 30 s for unreplied flows, plus skew
	proposerRests = 38 * time.Second // the peer's silence may have begun later
	// After quickAttempts the next follow every slowPunch, or idlePunch while idle, since an
	// attempt costs some 3 kB. The first traffic ends that wait.
	quickAttempts = 3
	slowPunch     = 5 * time.Minute
	idlePunch     = 2 * time.Hour
	// The low side proposes lowProposes after the relay works, the high side if no proposal came by
	// highProposes. If one NAT lets anyone in, they propose only if that has not led to a direct
	// path by then.
	lowProposes    = 500 * time.Millisecond
	highProposes   = 3 * time.Second
	dialingSuffice = 10 * time.Second
	maxFrom        = 4
)

// openerTTLs are the TTLs by attempt: 2 passes a NAT that is the next hop, as at home; 4 passes one
// behind a node and a router, and 3 is for a peer that is that close.
var openerTTLs = []int{2, 2, 4, 3}

// openerFar is the TTL if the peer's NAT is known to drop unsolicited packets.
const openerFar = 64

// punchRound is the round of full-TTL probes; with answerWithin it takes punchFor.
var punchRound = []time.Duration{
	0, 200 * time.Millisecond, 500 * time.Millisecond, 1000 * time.Millisecond,
	1500 * time.Millisecond, 2000 * time.Millisecond,
}

// punchPhase is the phase of an attempt.
type punchPhase uint8

const (
	punchIdle    punchPhase = iota // no attempt is running
	punchOpening                   // the first openers are being sent
	punchWaiting                   // for the peer's next step
	punching                       // full TTL
)

// puncher is the state of punching: one attempt at a time, for all server-reflexive pairs together.
type puncher struct {
	phase    punchPhase
	session  uint32
	attempt  int  // of the session, from 1
	mine     bool // we proposed
	opened   bool // the peer's NAT is open
	targets  []*pair
	since    time.Time // of the session
	deadline time.Time // of the phase
	left     int       // openers to send in punchOpening
	turn     int       // index of the next target
	opener   time.Time // when the next one is due

	failed     int       // attempts since the last success or event
	failedAt   time.Time // when the last one failed
	quietUntil time.Time // nothing may be sent to the targets
}

// covers reports whether a pair may be probed with full TTL.
func (u *puncher) covers(p *pair) bool {
	return u.phase == punching && slices.Contains(u.targets, p)
}

// forgive lets the next attempt start as soon as the silence allows.
func (u *puncher) forgive() { u.failed = min(u.failed, 1) }

// nextPunch is when the next attempt may be proposed. The high side waits a little longer, so that
// the low one's proposal arrives first.
func (m *Machine) nextPunch() time.Time {
	u := &m.punch
	wait := slowPunch
	switch {
	case u.failed == 0:
		return u.quietUntil
	case u.failed < quickAttempts:
		wait = proposerRests
	case m.idle():
		wait = idlePunch
	}
	if !m.o.Low {
		wait += highProposes
	}
	return u.failedAt.Add(wait)
}

// coordinate continues an attempt, or proposes one.
func (m *Machine) coordinate() {
	u := &m.punch
	u.targets = slices.DeleteFunc(u.targets, func(p *pair) bool { return !slices.Contains(m.pairs, p) })
	if u.phase != punchIdle && len(u.targets) == 0 {
		m.note("punching ended", "the addresses to punch are gone")
		*u = puncher{failed: u.failed, failedAt: u.failedAt, quietUntil: u.quietUntil}
		return
	}
	if u.phase != punchIdle && m.directWorks() {
		m.note("punched", fmt.Sprintf("attempt %d opened both NATs", u.attempt))
		*u = puncher{}
		return
	}
	switch u.phase {
	case punchIdle:
		m.propose()
	case punchOpening:
		if u.left == 0 && m.at(u.opener) {
			m.sayOpened()
		}
	case punchWaiting:
		switch {
		case m.targetHeard():
			m.punchNow()
		case m.at(u.deadline):
			m.punchFailed("the peer did not answer within " + roughly(waitForPeer))
		}
	case punching:
		if m.at(u.deadline) {
			m.punchFailed("no answer within " + roughly(punchFor))
		}
	}
}

func (m *Machine) directWorks() bool {
	return slices.ContainsFunc(m.pairs, func(p *pair) bool { return p.works() && p.class < classRelayed })
}

func (m *Machine) targetHeard() bool {
	return slices.ContainsFunc(m.punch.targets, func(p *pair) bool { return p.heard.After(m.punch.since) })
}

// propose starts an attempt if there is reason to.
func (m *Machine) propose() {
	s := m.sel
	if s == nil || s.class < classRelayed || s.state != Selected || !m.talk.heard || !m.at(m.nextPunch()) {
		return
	}
	targets := m.reflexiveTargets(nil)
	own, other := m.local.NAT, m.talk.nat
	if ok, _ := canPunch(own, other); !ok || len(targets) == 0 || m.directWorks() {
		return
	}
	wait := highProposes
	if m.o.Low {
		wait = lowProposes
	}
	if own.Filtering == endpointIndependent || other.Filtering == endpointIndependent {
		wait += dialingSuffice
	}
	if !m.at(m.switched.Add(wait)) {
		return
	}
	m.begin(puncher{session: m.o.Rand.Uint32(), attempt: m.punch.failed + 1, mine: true, targets: targets})
	m.note("punching", fmt.Sprintf("attempt %d is proposed over %s", m.punch.attempt, s.label))
	if opensFirst(own, other) {
		m.open()
		return
	}
	m.saySession(StepPropose)
	m.waitForPeer()
}

// begin starts an attempt and keeps the counts of earlier ones.
func (m *Machine) begin(u puncher) {
	u.failed, u.failedAt, u.quietUntil = m.punch.failed, m.punch.failedAt, m.punch.quietUntil
	u.since = m.now
	m.punch = u
}

// open sends the first openers.
func (m *Machine) open() {
	u := &m.punch
	u.phase, u.left, u.opener = punchOpening, openers*len(u.targets), m.now
}

// sayOpened tells the peer that our NAT is open: with the proposal, or in answer to it.
func (m *Machine) sayOpened() {
	if m.punch.mine {
		m.saySession(StepPropose)
		m.waitForPeer()
		return
	}
	m.saySession(StepOpened)
	if m.punch.opened {
		m.punchNow()
		return
	}
	m.waitForPeer()
}

func (m *Machine) waitForPeer() {
	u := &m.punch
	u.phase, u.deadline, u.opener = punchWaiting, m.now.Add(waitForPeer), m.now.Add(reopenEvery)
}

func (m *Machine) saySession(s Step) {
	u := &m.punch
	m.talk.say(Punch{
		Session: u.session, Step: s, Attempt: u.attempt, From: m.from(),
		Opened: s == StepPropose && u.phase == punchOpening,
	})
}

// from lists where our packets will come from, as far as we know.
func (m *Machine) from() []netip.AddrPort {
	var out []netip.AddrPort
	for _, seen := range []bool{true, false} {
		for _, c := range m.local.Candidates {
			public := c.Source != SourceRelay && relayable(c)
			if public && (c.Source == SourceSTUN) == seen && len(out) < maxFrom {
				out = append(out, c.Addr)
			}
		}
	}
	return out
}

// reflexiveTargets lists the pairs to open our own NAT for: the peer's server-reflexive ones, and
// those for the addresses it says it comes from. The latter create no pairs.
func (m *Machine) reflexiveTargets(from []netip.AddrPort) []*pair {
	var out []*pair
	for _, p := range m.pairs {
		named := slices.Contains(from, p.path.Remote)
		if p.path.Via == "" && !p.works() && !p.barred(m.now) && (p.source == SourceSTUN || named) && p.class < classRelayed {
			out = append(out, p)
		}
	}
	return out
}

// punchStep handles a step from the peer.
func (m *Machine) punchStep(s Punch) {
	u := &m.punch
	if s.Step == StepPropose {
		m.answerProposal(s)
		return
	}
	if u.phase == punchIdle || s.Session != u.session {
		return
	}
	switch {
	case s.Step == StepOpened && u.mine && u.phase == punchWaiting:
		first := opensFirst(m.local.NAT, m.talk.nat)
		m.punchNow()
		if !first {
			m.saySession(StepGo)
		}
	case s.Step == StepGo && !u.mine && u.phase == punchWaiting:
		m.punchNow()
	case s.Step == StepGo && !u.mine:
		u.opened = true
	case s.Step == StepWait && u.mine:
		m.wait(s)
	}
}

// answerProposal opens our own NAT, unless that would break a silence.
func (m *Machine) answerProposal(s Punch) {
	u := &m.punch
	targets := m.reflexiveTargets(s.From)
	switch {
	case m.directWorks() || len(targets) == 0 || m.sel == nil:
		return
	case u.phase != punchIdle && (u.mine && m.o.Low || u.phase == punching):
		return // our own proposal wins, or the last attempt is still running
	case u.quietUntil.After(m.now):
		wait := u.quietUntil.Sub(m.now)
		m.talk.say(Punch{Session: s.Session, Step: StepWait, Attempt: s.Attempt, WaitMillis: wait.Milliseconds()})
		return
	}
	m.begin(puncher{session: s.Session, attempt: min(max(s.Attempt, 1), 1000), opened: s.Opened, targets: targets})
	m.note("punching", fmt.Sprintf("the peer proposes attempt %d", m.punch.attempt))
	m.open()
}

// wait postpones the proposal as the peer asks.
func (m *Machine) wait(s Punch) {
	u := &m.punch
	ask := min(max(time.Duration(s.WaitMillis)*time.Millisecond, time.Second), 2*silence)
	u.phase, u.targets = punchIdle, nil
	u.quietUntil = later(u.quietUntil, m.now.Add(ask))
	if u.failed > 0 {
		u.failedAt = m.now.Add(ask - proposerRests)
	}
	m.note("punching put off", "the peer still waits for its NAT to forget: "+roughly(ask))
}

// punchNow sends with full TTL.
func (m *Machine) punchNow() {
	u := &m.punch
	u.phase, u.deadline = punching, m.now.Add(punchFor)
	for _, p := range u.targets {
		if !p.works() {
			m.startPlan(p, punchRound, fmt.Sprintf("both NATs are open: attempt %d", u.attempt))
		}
	}
}

// punchFailed ends an attempt and starts the silence.
func (m *Machine) punchFailed(why string) {
	u := &m.punch
	m.note("punching failed", fmt.Sprintf("attempt %d: %s; silence for %s", u.attempt, why, roughly(silence)))
	*u = puncher{failed: u.failed + 1, failedAt: m.now, quietUntil: m.now.Add(silence)}
}

// openerDue returns the next opener to send and its TTL.
func (m *Machine) openerDue() (*pair, int) {
	u := &m.punch
	opening := u.phase == punchOpening && u.left > 0
	if !opening && u.phase != punchWaiting || len(u.targets) == 0 || !m.at(u.opener) {
		return nil, 0
	}
	// A side that waits without having opened lets the peer go first.
	if u.phase == punchWaiting && u.mine && !opensFirst(m.local.NAT, m.talk.nat) {
		return nil, 0
	}
	if m.talk.nat.Strays == StraysDropped {
		return u.targets[u.turn%len(u.targets)], openerFar
	}
	return u.targets[u.turn%len(u.targets)], openerTTLs[(u.attempt-1)%len(openerTTLs)]
}

// openerSent schedules the next opener.
func (m *Machine) openerSent() {
	u := &m.punch
	u.turn++
	every := reopenEvery
	if u.phase == punchOpening {
		u.left--
		every = openerEvery
	}
	u.opener = m.now.Add(max(every/time.Duration(len(u.targets)), pace))
}
