// Package handshake decides when a WireGuard handshake with a peer is started, repeated and
// given up. A [Machine] holds no clock, no socket and no lock: it is told what happens, with the
// time, and [Machine.Poll] answers with what to do and when to ask again.
//
// wireguard-go makes the messages. The engine keeps each initiation that it makes
// until the machine has it sent, and the machine has the same one sent again where one is
// missing an answer. A second one would make the first void, and the device makes none within 5 s
// of the last (REKEY_TIMEOUT) unless it is forced to, by giving up all sessions.
package handshake

import (
	"math/rand/v2"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// State is where the handshake with a peer stands.
//
//	          there is a path,                 at its time
//	          or silence for 5 s
//	Down, Up ────────────────────▶ Due ─────────────────────────▶ Offered ◀─┐ no answer:
//	  ▲  ▲                          ▲        or by the device        │  │   ─┘ 1, 2, 4 … 30 s
//	  │  │    no data within 1 s    │                                │  │
//	  │  │  ┌───────────────────────┘     we answer the peer's       │  │
//	  │  └──┴── Answered ◀───────────────────────────────────────────┘  │
//	  │   the peer's data                                               │
//	  ├─────────────────────────────────────────────────────────────────┘
//	  │   the peer answers, or sends within a session
//	  │
//	  └──────── Forced ────▶ Offered
//	              ▲
//	              └── asked to, a dead session, a crossing that undid both, a cookie is due
//
// Where nothing leads anywhere, Offered, Due and Forced end in Down.
type State uint8

// States.
const (
	// Down: no session is there, and none is being made. Nobody wants one, or only the peer
	// can dial.
	Down State = iota
	// Due: an initiation is sent at NextTry.
	Due
	// Forced: the same, by giving up whatever sessions there are.
	Forced
	// Offered: an initiation is on its way, and is sent again at NextTry.
	Offered
	// Answered: the device has answered the peer's initiation and by that forgotten its own.
	// The session begins with the peer's data.
	Answered
	// Up: there is a session, and it is answered.
	Up
)

// String is the state in a word, for logs and tests.
func (s State) String() string {
	return [...]string{"down", "due", "forced", "offered", "answered", "up"}[s]
}

const (
	// firstRetry and lastRetry bound the growing pause between tries.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// Rekey is how far apart the device's own initiations are at least (whitepaper §6.1). An
	// older one is not sent again: by then the device makes another.
	Rekey = 5 * time.Second
	// newPathWait is how long after a try another is made for a path that is new, or
	// known to work only since, at first: the pause doubles until it is firstRetry, so that paths
	// that change all the time cost no more than that.
	newPathWait = 250 * time.Millisecond
	// answerLag is how far apart a peer's answer to an initiation and its first data may come,
	// when the former reached it at the same time as what it begins the session with.
	answerLag = 50 * time.Millisecond
	// TieBreakDelay is how long one of two sides waits for the other's initiation, which follows a
	// probe by which the path was found, as a rule, within milliseconds.
	TieBreakDelay = 20 * time.Millisecond
)

// Config says which peer a machine is for.
type Config struct {
	// Managed peers have their paths chosen from outside, and the underlay tells of their
	// handshakes. All that is known of others are the device's counters.
	Managed bool
	// Yields says that of initiations that cross the peer's counts.
	Yields bool
}

// Machine is one peer's.
type Machine struct {
	Config
	Status

	state   State
	offer   offer
	session session
	silence silence
	// held are initiations of the peer's that wait until a time, give those that the device gets.
	held      []held
	heldUntil time.Time
	give      []Initiation
	// sentAt is when an initiation was last sent, answeredAt when the device answered one of the
	// peer's whose session has not begun yet.
	sentAt, answeredAt time.Time
	// hurried is how many tries for new paths followed one upon the other, as far as it matters.
	hurried int
}

// offer is the last initiation that the device has made.
type offer struct {
	message []byte // nil once it is void
	madeAt  time.Time
	dueAt   time.Time // zero: it waits for a way, or was sent
	sentAt  time.Time // zero: it was not
	// responseAt is when the first response to it came, true or not.
	responseAt time.Time
}

// Actions are what is to be done now.
type Actions struct {
	// Send is an initiation to be sent over the peer's paths; nil for none.
	Send []byte
	// Make asks the device for an initiation, which comes by [Made]. Force has it make one
	// also within 5 s of the last, by giving up the sessions.
	Make, Force bool
	// Give are initiations of the peer's that the device gets.
	Give []Initiation
	// Quiet and Silent tell that what is sent over the selected path is not answered.
	Quiet, Silent bool
}

// State is where the handshake stands.
func (m *Machine) State() State { return m.state }

// Add starts a handshake with a peer that is new, or may be reached since.
func (m *Machine) Add(now time.Time) { m.plan(now.Add(m.tieBreak())) }

// Changed starts one with a peer whose configuration may be what was missing. The peer knows
// the last initiation already.
func (m *Machine) Changed(now time.Time) {
	if !m.alive(now) {
		m.plan(now)
		m.offer.message = nil
		if !m.Session(now) && !m.sentAt.IsZero() {
			m.state = Forced
		}
	}
}

// NewPath starts one, where there is no session, since a path is new or known to work.
func (m *Machine) NewPath(now time.Time) {
	if m.alive(now) {
		return
	}
	at, planned := now.Add(m.tieBreak()), m.NextTry
	if now.Sub(m.sentAt) > 2*firstRetry {
		m.hurried = 0
	} else {
		at = later(at, m.sentAt.Add(min(newPathWait<<m.hurried, firstRetry)))
		m.hurried = min(m.hurried+1, 2)
	}
	if !planned.IsZero() && planned.Before(at) {
		at = planned
	}
	m.plan(at)
}

// Renew starts one at the end of the wait, unless another completes before, or did so within as
// long before now.
func (m *Machine) Renew(now time.Time, wait time.Duration) {
	just := !m.ShookAt.IsZero() && now.Sub(m.ShookAt) < wait
	soon := !m.NextTry.IsZero() && m.NextTry.Before(now.Add(wait))
	if !just && !soon {
		m.plan(now.Add(wait))
	}
}

// Redial starts one now, and gives up the sessions for it. One that the peer has begun is let
// complete instead.
func (m *Machine) Redial(now time.Time) {
	m.plan(now)
	m.state = Forced
	if !m.answeredAt.IsZero() {
		m.NextTry = later(now, m.answeredAt.Add(firstRetry))
	}
}

// plan has an initiation sent at a time, and quick retries after it.
func (m *Machine) plan(at time.Time) {
	m.Attempts, m.silence.attempts, m.NextTry = 0, 0, at
	if m.state != Answered && m.state != Forced {
		m.state = Due
	}
}

// force has the next initiation made soon, and the sessions given up for it.
func (m *Machine) force(at time.Time) {
	if m.state != Forced || m.NextTry.IsZero() || at.Before(m.NextTry) {
		m.NextTry = at
	}
	m.state = Forced
}

// tieBreak is how long a path is left to the peer at first, which most likely has found it at the
// same moment: of two initiations that cross, each undoes the other.
func (m *Machine) tieBreak() time.Duration {
	if m.Managed && m.Yields {
		return TieBreakDelay
	}
	return 0
}

// made takes an initiation of the device's. It is sent at once if there is a way, and kept for
// one that comes otherwise.
func (m *Machine) made(now time.Time, initiation []byte, reachable bool) {
	m.offer = offer{message: initiation, madeAt: now}
	if reachable {
		m.offer.dueAt = now
	}
}

// answered takes in that the device takes no response to its own initiation any more.
func (m *Machine) answered(now time.Time) {
	crossed := m.outstanding(now) && !m.offer.responseAt.IsZero()
	m.offer.message, m.answeredAt = nil, now
	switch {
	case m.Session(now):
	case crossed:
		m.undone(now)
	default:
		m.state = Answered
		if !m.NextTry.IsZero() {
			m.NextTry = later(m.NextTry, now.Add(firstRetry))
		}
	}
}

func (m *Machine) responded(now time.Time) {
	if m.offer.responseAt.IsZero() {
		m.offer.responseAt = now
		if m.state == Answered && now.Sub(m.offer.sentAt) < crossingTime {
			m.undone(now)
		}
	}
}

// undone takes in that an initiation of ours and one of the peer's have undone each other: each
// side has answered the other's. One of the two dials again soon, unless the peer shows before
// that it has a session all the same; the other when that has had its time.
func (m *Machine) undone(now time.Time) {
	if m.Yields {
		m.force(later(m.NextTry, now.Add(firstRetry)))
	} else {
		m.force(now.Add(answerLag))
	}
}

// cookieDue has a new initiation made next: the last one shows no cookie.
func (m *Machine) cookieDue(now time.Time) {
	if m.state == Offered && !m.Session(now) {
		m.state = Forced
	}
}

// began takes in that a session has begun.
func (m *Machine) began(now time.Time, over peer.Path, dead bool) {
	m.Source, m.Proven, m.answeredAt = over, over, time.Time{}
	m.release(func(h held) bool { return h.late })
	if dead {
		m.session = lost
		m.force(later(now.Add(answerLag), m.sentAt.Add(newPathWait)))
		return
	}
	m.ShookAt = now
	m.heard(now)
}

// Due reports whether something is to be sent now.
func (m *Machine) Due(now time.Time) bool { return !m.NextTry.IsZero() && !now.Before(m.NextTry) }

// Poll says what to do now and when to ask again, zero for no time. reachable tells whether there
// is any way to the peer, judged whether a path was selected whose silence matters.
func (m *Machine) Poll(now time.Time, reachable, judged bool) (a Actions, next time.Time) {
	if m.state == Up && !m.Session(now) {
		m.state = Down
	}
	if judged {
		a.Quiet, a.Silent = m.quiet(now), m.silent(now)
	}
	if !m.heldUntil.IsZero() && !now.Before(m.heldUntil) {
		m.release(func(held) bool { return true })
	}
	a.Give, m.give = m.give, nil
	switch {
	case m.offer.message != nil && !m.offer.dueAt.IsZero() && reachable:
		switch {
		case m.Due(now) || m.state == Forced || m.state != Offered && !m.Session(now):
			m.tried(now)
		case !m.NextTry.IsZero():
			m.NextTry = later(m.NextTry, now.Add(firstRetry))
		}
		a.Send = m.send(now)
	case !m.Due(now):
	case !reachable: // Only the peer can dial.
		m.NextTry = time.Time{}
		m.state = Down
		if m.Session(now) {
			m.state = Up
		}
	case m.state != Forced && m.offer.message != nil && now.Sub(m.offer.madeAt) < Rekey:
		m.tried(now)
		a.Send = m.send(now)
	default:
		// Whoever answers initiations all the time has the device make none.
		a.Make, a.Force = true, m.state == Forced || m.state == Answered
		if a.Force {
			m.session, m.offer.message = lost, nil
		}
		m.tried(now)
	}
	return a, sooner(m.NextTry, m.heldUntil)
}

// tried notes a try and sets when the next one is: after 1, 2, 4 … 30 s and up to a quarter of
// that more. Initiations of both sides that cross undo each other; so that they do not do it
// again, one of the two sides waits half as long again.
func (m *Machine) tried(now time.Time) {
	pause := lastRetry
	if m.Attempts < 5 {
		pause = min(firstRetry<<m.Attempts, lastRetry)
	}
	m.Attempts++
	m.state = Offered
	m.NextTry = now.Add(pause + rand.N(pause/4))
	if m.Yields {
		m.NextTry = m.NextTry.Add(pause / 2)
	}
}

// send notes that the initiation is sent.
func (m *Machine) send(now time.Time) []byte {
	m.sentAt, m.offer.sentAt, m.offer.dueAt = now, now, time.Time{}
	return m.offer.message
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// sooner gives the earlier of two times that may be unset.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
