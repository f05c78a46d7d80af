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
	// pollAtLeast bounds the time between two polls, so that a jump of the clock is seen.
	pollAtLeast = time.Minute
	// sleptAfter is how late a poll must come to mean that the process was suspended.
	// A busy machine delays it by a second or two.
	sleptAfter = 15 * time.Second
	// rebootNotes is how often a restart of the peer is worth a note: it can claim one with
	// each probe.
	rebootNotes = 10 * time.Second
)

// Machine finds and keeps the path to one peer. It is not safe for concurrent use. Every
// input takes the time first; a time before the last one counts as the last one. After
// each input, and at the time that [Machine.Poll] gave, Poll says what to do.
type Machine struct {
	o Options

	now      time.Time // the time of the input in progress
	wake     time.Time // the earliest thing still to come, collected while polling
	promised time.Time // what the last Poll said

	local  Local
	remote remotes
	pairs  []*pair // in the order they were made
	order  map[netip.AddrPort]uint8
	lastID uint16
	sel    *pair      // in use: Selected, or Suspect for want of better
	why    string     // of sel, or of having lost the last one; empty before the first
	last   lastPath   // that was lost
	lost   *RelayLost // since there is no path, or the selected one is about to go
	// switched is when sel last changed, to a pair or to none.
	switched time.Time
	traffic  time.Time // the tunnel last carried more than keepalives
	shaken   time.Time // the last completed handshake
	rebooted time.Time // when a restart of the peer was last noted
	silent   time.Time // when a path was last demoted for silence
	probing  bool      // the peer has answered a probe: it knows them
	slow     time.Time // when the next turn of retries while idle is
	trips    Trips

	deaf    deafness
	sweep   sweep
	sender  sender
	talk    talk
	punch   puncher
	history history

	handshake bool
	doubtful  bool         // a relayed path is in doubt
	routing   Routing      // as last told
	permit    []netip.Addr // as last told
}

// New makes a machine that knows nothing yet.
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

// SetLocal tells what our own side has to offer.
func (m *Machine) SetLocal(now time.Time, l Local) {
	m.advance(now)
	m.setLocal(l)
}

// SetRemote tells the peer's candidates: those from a ticket, the configuration or the
// last run, or, announced, those that the peer told in-band other than by [Message].
// Each call replaces the former list of its kind; announced ones that are gone linger
// for five minutes.
func (m *Machine) SetRemote(now time.Time, cs []Candidate, announced bool) {
	m.advance(now)
	if announced {
		m.remote.announce(m.now, cs)
	} else {
		m.remote.give(cs)
	}
	m.pairUp()
}

// SetOrder tells in which order addresses of the peer are preferred, whatever their round
// trips, as the priorities and weights of records in DNS say: 0 first, which is that of all
// others too. It counts within a class of paths.
func (m *Machine) SetOrder(now time.Time, order map[netip.AddrPort]uint8) {
	m.advance(now)
	m.order = maps.Clone(order)
	for _, p := range m.pairs {
		p.order = m.order[p.path.Remote]
	}
}

// Receive takes a message of the peer's machine.
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

// Requested tells of an authenticated, fresh probe of the peer; rebooted, that the peer
// was restarted since its last one.
func (m *Machine) Requested(now time.Time, from peer.Path, rebooted bool) {
	m.advance(now)
	if rebooted {
		m.handshake = true
		if m.now.Sub(m.rebooted) > rebootNotes || m.rebooted.IsZero() {
			m.rebooted = m.now
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
		s.due = m.now // The peer may have another address now: see moved.
	}
	again := m.now.Sub(p.heard) < askedAgain
	if m.now.Sub(p.heard) >= time.Second {
		p.heardBefore = p.heard
	}
	p.heard = m.now
	m.askedOver(p, again)
}

// HandshakeDone tells that a handshake was completed over a path. It proves the path as
// long as the peer has answered no probe at all: a responder cannot know which of its
// copies arrived.
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
		case !m.probing: // Silence alone judges it, and that is over.
			p.barredUntil = time.Time{}
			m.move(p, Valid, "a handshake was completed over it")
		case p.barred(m.now):
		case p.state != Suspect:
			m.startRound(p, "a handshake was completed over it")
		}
	case Valid, Selected:
	}
}

// Silent tells that what the tunnel sends over the selected path is not answered. The
// path is demoted even if probes pass, and kept out for a time that grows. After one such
// change the peer is given time to follow, since until then it may send into the void.
func (m *Machine) Silent(now time.Time) {
	m.advance(now)
	if m.sel == nil || m.now.Sub(m.silent) < followWithin {
		return
	}
	p := m.sel
	m.silent = m.now
	if p.asked < movedAt { // Probes pass, so they are no proof; a path that is dead shows its recovery by them.
		p.bar(m.now)
		m.sayDeaf(p)
	}
	p.mtu.suspect()
	m.move(p, Suspect, "what the tunnel sends over it is not answered")
	m.reviveAll("the selected path is silent")
}

// Doubt tells that something sent to the peer has no answer, though it might have by now: the
// selected path is probed at once, unless it is being asked already.
func (m *Machine) Doubt(now time.Time) {
	m.advance(now)
	if m.sel != nil && m.sel.asked == 0 {
		m.sel.due = m.now
	}
}

// Traffic tells that the tunnel carried more than keepalives since the last call. Once a
// second is often enough.
func (m *Machine) Traffic(now time.Time) {
	m.advance(now)
	wasIdle := m.idle()
	m.traffic = m.now
	if wasIdle {
		m.wakeUp()
	}
}

// NetworkChanged tells that our own addresses changed or that the process was suspended.
func (m *Machine) NetworkChanged(now time.Time) {
	m.advance(now)
	m.networkChanged("own addresses changed")
}

// networkChanged has all paths tried at once.
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

// idle says whether the tunnel has carried nothing for a while.
func (m *Machine) idle() bool { return m.now.Sub(m.traffic) > idleAfter }

// Resting says that nothing presses: the tunnel carries nothing, and the selected path works
// and is not to be probed yet. What a probe of the peer over that path has changed then, or
// the answer to one, may wait for a [Beat] to be looked at by Poll.
func (m *Machine) Resting() bool {
	s := m.sel
	return s != nil && s.state == Selected && s.asked == 0 && s.answers >= gainSamples && s.due.After(m.now) &&
		s.mtu.search == nil && m.idle() && !m.handshake && !m.doubtful &&
		!m.talk.stale && len(m.talk.queue) == 0 && len(m.history.fresh) == 0
}

// advance takes the time of an input.
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

// at says whether a time has come, and sees to it that the machine is polled when it
// does.
func (m *Machine) at(t time.Time) bool {
	if !t.After(m.now) {
		return true
	}
	if t.Before(m.wake) {
		m.wake = t
	}
	return false
}

// Poll says what to do now and when to call again at the latest, which is after now.
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

// settle brings everything in line with the time and what was told since.
func (m *Machine) settle() {
	m.prune()
	m.thaw()
	for _, p := range m.pairs {
		m.age(p)
	}
	m.retry()
	m.choose()
	m.coordinate()
	m.thaw() // The choice and the coordination decide what may be tried.
	m.keepUp()
	m.measure()
}
