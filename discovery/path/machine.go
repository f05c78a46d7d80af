package path

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	defaultKeepalive = 20 * time.Second // also control/config's
	// pollAtLeast bounds the time between two polls, so that a jump of the clock is noticed.
	pollAtLeast = time.Minute
	// sleptAfter is how late a poll must be to mean that the process was suspended. A busy host
	// delays it by a second or two.
	sleptAfter = 15 * time.Second
	// rebootNotes is how often a restart of the peer is noted: it can claim one with each probe.
	rebootNotes = 10 * time.Second
)

// Machine finds and keeps the path to one peer. It is not safe for concurrent use. Every input
// takes the time first; a time before the last one counts as the last one. Call [Machine.Poll]
// after each input, and at the time that it returned, to learn what to do.
type Machine struct {
	o Options

	now      time.Time // the time of the input in progress
	wake     time.Time // the next deadline, collected while polling
	promised time.Time // returned by the last Poll

	local  Local
	remote remotes
	pairs  []*pair // in order of creation
	order  map[netip.AddrPort]uint8
	lastID uint16
	sel    *pair      // in use: Selected, or Suspect for lack of better
	why    string     // reason for sel, or for losing the last one; empty before the first
	last   lastPath   // the lost path
	lost   *RelayLost // set while there is no path, or the selected one is about to go
	// switched is when sel last changed, to a pair or to none.
	switched time.Time
	traffic  time.Time // when the tunnel last carried more than keepalives
	shaken   time.Time // when the last handshake completed
	rebooted time.Time // when a restart of the peer was last noted
	silent   time.Time // when a path was last demoted for silence
	probing  bool      // the peer has answered a probe, so it supports them
	slow     time.Time // when the next idle retry is due
	trips    Trips

	deaf    deafness
	sweep   sweep
	sender  sender
	talk    talk
	punch   puncher
	history history

	interruptions interruptions

	handshake bool
	doubtful  bool         // a relayed path is in doubt
	routing   Routing      // as last returned
	permit    []netip.Addr // as last returned
	known     []netip.Addr // as last returned while we had a relay: they are not new to the next one
	admitted  time.Time    // when the last new address was, at a rate of one every permitEvery
}

// New returns a machine that knows nothing yet.
func New(o Options) *Machine {
	if o.Keepalive <= 0 {
		o.Keepalive = defaultKeepalive
	}
	if o.Searches == nil {
		o.Searches = new(Searches)
	}
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return &Machine{o: o, sender: newSender()}
}

// SetLocal sets what our own side offers.
func (m *Machine) SetLocal(now time.Time, l Local) {
	m.advance(now)
	m.setLocal(l)
}

// SetRemote sets the peer's candidates: those from a ticket, the configuration or the last run or,
// if announced, those that the peer sent in-band other than by [Message]. Each call replaces the
// previous list of its kind; withdrawn announced candidates linger for five minutes.
func (m *Machine) SetRemote(now time.Time, cs []Candidate, announced bool) {
	m.advance(now)
	if announced {
		m.remote.announce(m.now, cs)
	} else {
		m.remote.give(cs)
	}
	m.pairUp()
}

// SetOrder sets the order in which the peer's addresses are preferred, regardless of round trips,
// as given by the priorities and weights of DNS records: 0 first, which is also the default. It
// applies within a class of paths.
func (m *Machine) SetOrder(now time.Time, order map[netip.AddrPort]uint8) {
	m.advance(now)
	m.order = maps.Clone(order)
	for _, p := range m.pairs {
		p.order = m.order[p.path.Remote]
	}
}

// Receive handles a message from the peer's machine.
func (m *Machine) Receive(now time.Time, msg Message) {
	m.advance(now)
	if !m.talk.accept(msg) {
		return
	}
	if msg.Candidates != nil {
		m.remote.announce(m.now, msg.Candidates)
		m.pairUp()
	}
	m.peerMTU(msg.MTU)
	if msg.Punch != nil {
		m.punchStep(*msg.Punch)
	}
}

// Requested handles an authenticated, fresh probe from the peer; rebooted says that the peer has
// restarted since its last one.
func (m *Machine) Requested(now time.Time, from peer.Path, rebooted bool) {
	m.advance(now)
	if rebooted {
		m.handshake = true
		if m.now.Sub(m.rebooted) > rebootNotes || m.rebooted.IsZero() {
			m.rebooted = m.now
			m.interruptions.restarted(m.now)
			m.note(EventRestarted, "its boot id changed: a new handshake is made")
		}
		if m.sel != nil {
			m.sel.due = m.now
		}
	}
	p := m.reflexive(from)
	if p == nil {
		return
	}
	if s := m.sel; s != nil && s != p && s.class == p.class && s.asked == 0 && !m.idle() && m.now.Sub(p.heard) > freshFor {
		s.due = m.now // the peer may have another address now: see moved
	}
	again := m.now.Sub(p.heard) < askedAgain
	if m.now.Sub(p.heard) >= time.Second {
		p.heardBefore = p.heard
	}
	p.heard = m.now
	m.askedOver(p, again)
}

// HandshakeDone reports that a handshake completed on a path. It proves the path if the peer has
// never answered a probe: a responder cannot know which of its copies arrived.
func (m *Machine) HandshakeDone(now time.Time, over peer.Path) {
	m.advance(now)
	m.shaken = m.now
	p := m.reflexive(over)
	if p == nil {
		return
	}
	p.shaken = m.now
	switch p.state {
	case Frozen, Probing, Failed, Suspect:
		switch {
		case !m.probing: // only silence counts against it, and that is over
			p.barredUntil = time.Time{}
			m.move(p, Valid, "a handshake was completed over it")
		case p.barred(m.now):
		case p.state != Suspect:
			m.startRound(p, "a handshake was completed over it")
		}
	case Valid, Selected:
	}
	if m.sel == nil && m.probing {
		// The peer may refuse our probes as those of an earlier start: after several copies of this
		// gateway have ended, it cannot tell them from a replay. In-band it can.
		m.talk.stale, m.talk.through = true, true
	}
}

// Silent reports that what the tunnel sends on the selected path goes unanswered. The path is
// demoted even if probes pass, and barred for a growing time. After such a change the peer gets
// time to follow, since until then it may send into the void.
func (m *Machine) Silent(now time.Time) {
	m.advance(now)
	if m.sel == nil || m.now.Sub(m.silent) < followWithin {
		return
	}
	p := m.sel
	m.silent = m.now
	if p.asked < movedAt { // probes pass, so they are no proof; on a dead path they show its recovery
		p.bar(m.now)
		m.sayDeaf(p)
	}
	p.mtu.suspect()
	m.move(p, Suspect, "what the tunnel sends over it is not answered")
	m.reviveAll("the selected path is silent")
}

// Doubt reports that something sent to the peer has no answer when it should: the selected path is
// probed at once, unless it is being probed already.
func (m *Machine) Doubt(now time.Time) {
	m.advance(now)
	if m.sel != nil && m.sel.asked == 0 {
		m.sel.due = m.now
	}
}

// Reprobe reports that the tunnel carries data although no probe is answered: the selected path is
// probed at once or, if there is none, every path that may be tried.
func (m *Machine) Reprobe(now time.Time) {
	m.Doubt(now)
	for _, p := range m.pairs {
		if m.sel == nil && p.state == Failed {
			m.startRound(p, "the tunnel carries data")
		}
	}
}

// Traffic reports that the tunnel carried more than keepalives since the last call. Once a second
// is enough.
func (m *Machine) Traffic(now time.Time) {
	m.advance(now)
	wasIdle := m.idle()
	m.traffic = m.now
	if wasIdle {
		m.wakeUp()
	}
}

// NetworkChanged reports that our own addresses changed or that the process was suspended.
func (m *Machine) NetworkChanged(now time.Time) {
	m.advance(now)
	m.networkChanged("own addresses changed")
}

// networkChanged tries all paths at once.
func (m *Machine) networkChanged(why string) {
	m.note("all paths are tried", why)
	for _, p := range m.pairs {
		p.mtu.forget()
		p.barredUntil = time.Time{}
	}
	m.reviveAll(why)
	if m.sel != nil {
		m.sel.due = m.now
	}
	m.punch.forgive()
	m.talk.stale = true
}

// idle reports whether the tunnel has carried nothing for a while.
func (m *Machine) idle() bool { return m.now.Sub(m.traffic) > idleAfter }

// Resting reports that nothing is urgent: the tunnel carries nothing, and the selected path works
// and needs no probe yet. Then the effect of a peer's probe on that path, or of an answer, may wait
// up to a [Beat] for the next Poll.
func (m *Machine) Resting() bool {
	s := m.sel
	return s != nil && s.state == Selected && s.asked == 0 && s.answers >= gainSamples && s.due.After(m.now) &&
		s.mtu.search == nil && m.idle() && !m.handshake && !m.doubtful &&
		!m.talk.stale && len(m.talk.queue) == 0 && len(m.history.fresh) == 0
}

// advance sets the time of an input.
func (m *Machine) advance(now time.Time) {
	if m.now.IsZero() {
		m.switched = now
	}
	if now.After(m.now) {
		m.now = now
	}
	if !m.promised.IsZero() && m.now.Sub(m.promised) > sleptAfter {
		late := m.now.Sub(m.promised)
		m.promised = m.now
		m.networkChanged("the process stood still for " + roughly(late))
	}
}

// at reports whether a time has come; if not, it schedules a poll for it.
func (m *Machine) at(t time.Time) bool {
	if !t.After(m.now) {
		return true
	}
	if t.Before(m.wake) {
		m.wake = t
	}
	return false
}

// Poll returns what to do now and the latest time of the next call, which is after now.
func (m *Machine) Poll(now time.Time) (Actions, time.Time) {
	m.advance(now)
	m.wake = m.now.Add(pollAtLeast)
	m.settle()
	a := Actions{Handshake: m.handshake}
	m.handshake = false
	if p, ok := m.nextProbe(); ok {
		a.Probes = append(a.Probes, p)
	}
	a.Probes = append(a.Probes, m.sweepPorts()...)
	a.CheckRelays, m.doubtful = m.doubtful, false
	a.Routing = m.route()
	a.Permit = m.admit()
	a.Messages = m.talk.take(m)
	a.Notes = m.history.take()
	m.promised = m.wake
	return a, m.wake
}

// settle brings everything up to date with the time and the inputs since.
func (m *Machine) settle() {
	m.prune()
	m.thaw()
	for _, p := range m.pairs {
		m.age(p)
	}
	m.retry()
	m.choose()
	m.coordinate()
	m.thaw() // the choice and the coordination decide what may be tried
	m.keepUp()
	m.measure()
	m.watch()
}
