// Package handshake decides when a WireGuard handshake with a peer is started, repeated and given
// up. A [Machine] has no clock, socket or lock: it is given events with the time, and
// [Machine.Poll] returns what to do and when to poll again.
//
// wireguard-go makes the messages. The engine keeps each initiation that it makes until the machine
// has it sent, and the machine has the same one sent again if it goes unanswered. A second one
// would void the first, and the device makes none within 5 s of the last (REKEY_TIMEOUT) unless it
// is forced to, by discarding all sessions.
package handshake

import (
	"math/rand/v2"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// State is the state of the handshake with a peer.
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
// With no path, Offered, Due and Forced end in Down.
type State uint8

// States.
const (
	// Down: there is no session, and none is being made. Nobody wants one, or only the peer can
	// dial.
	Down State = iota
	// Due: an initiation is sent at NextTry.
	Due
	// Forced: the same, and the existing sessions are discarded for it.
	Forced
	// Offered: an initiation was sent, and is sent again at NextTry.
	Offered
	// Answered: the device has answered the peer's initiation and so discarded its own. The session
	// begins with the peer's data.
	Answered
	// Up: there is a session, and the peer answers.
	Up
)

// String returns the state as a word, for logs and tests.
func (s State) String() string {
	return [...]string{"down", "due", "forced", "offered", "answered", "up"}[s]
}

const (
	// firstRetry and lastRetry bound the growing interval between tries.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// Rekey is the least time between the device's own initiations (whitepaper §6.1). An older one
	// is not sent again: by then the device makes another.
	Rekey = 5 * time.Second
	// newPathWait is the first interval after which a try is repeated for a path that is new or has
	// just proved to work. It doubles up to firstRetry, so that paths that keep changing cost no
	// more than that.
	newPathWait = 250 * time.Millisecond
	// answerLag is how far apart a peer's answer and its first data may arrive, if our initiation
	// reached the peer just as it began the session.
	answerLag = 50 * time.Millisecond
	// TieBreakDelay is how long one side waits for the other's initiation, which usually follows
	// within milliseconds of the probe that found the path.
	TieBreakDelay = 20 * time.Millisecond
)

// Config describes the peer of a machine.
type Config struct {
	// Managed peers have their paths chosen from outside, and the underlay reports their
	// handshakes. For others only the device's counters are known.
	Managed bool
	// Yields says that of two crossing initiations the peer's wins.
	Yields bool
}

// Machine decides on the handshakes with one peer.
type Machine struct {
	Config
	Status

	state   State
	offer   offer
	session session
	silence silence
	// held are initiations from the peer that wait until a time, give those to give to the device.
	held      []held
	heldUntil time.Time
	give      []Initiation
	// sentAt is when an initiation was last sent, answeredAt when the device answered one from the
	// peer whose session has not begun yet.
	sentAt, answeredAt time.Time
	// quickTries counts successive tries for new paths, as far as it matters.
	quickTries int
}

// offer is the device's last initiation.
type offer struct {
	message []byte // nil once it is void
	madeAt  time.Time
	dueAt   time.Time // zero: it waits for a path, or was sent
	sentAt  time.Time // zero: not sent
	// responseAt is when the first response to it arrived, authentic or not.
	responseAt time.Time
}

// Actions are what to do now.
type Actions struct {
	// Send is an initiation to send on the peer's paths; nil for none.
	Send []byte
	// Make asks the device for an initiation, which is reported as [Made]. Force makes it do so
	// even within 5 s of the last, by discarding the sessions.
	Make, Force bool
	// Give are initiations from the peer to give to the device.
	Give []Initiation
	// Quiet and Silent report that what is sent on the selected path goes unanswered.
	Quiet, Silent bool
}

// State returns the state of the handshake.
func (m *Machine) State() State { return m.state }

// Add starts a handshake with a peer that is new or has become reachable.
func (m *Machine) Add(now time.Time) { m.plan(now.Add(m.tieBreak())) }

// Changed starts one with a peer whose configuration may have been the obstacle. The peer already
// knows the last initiation.
func (m *Machine) Changed(now time.Time) {
	if !m.alive(now) {
		m.plan(now)
		m.offer.message = nil
		if !m.Session(now) && !m.sentAt.IsZero() {
			m.state = Forced
		}
	}
}

// NewPath starts one if there is no session, since a path is new or known to work.
func (m *Machine) NewPath(now time.Time) {
	if m.alive(now) {
		return
	}
	at, planned := now.Add(m.tieBreak()), m.NextTry
	if now.Sub(m.sentAt) > 2*firstRetry {
		m.quickTries = 0
	} else {
		at = later(at, m.sentAt.Add(min(newPathWait<<m.quickTries, firstRetry)))
		m.quickTries = min(m.quickTries+1, 2)
	}
	if !planned.IsZero() && planned.Before(at) {
		at = planned
	}
	m.plan(at)
}

// Renew starts one at the end of the wait, unless another completes before, or has completed within
// the same time before now.
func (m *Machine) Renew(now time.Time, wait time.Duration) {
	just := !m.ShookAt.IsZero() && now.Sub(m.ShookAt) < wait
	soon := !m.NextTry.IsZero() && m.NextTry.Before(now.Add(wait))
	if !just && !soon {
		m.plan(now.Add(wait))
	}
}

// Redial starts one now and discards the sessions for it. If the peer has begun one, that is left
// to complete instead.
func (m *Machine) Redial(now time.Time) {
	m.plan(now)
	m.state = Forced
	if !m.answeredAt.IsZero() {
		m.NextTry = later(now, m.answeredAt.Add(firstRetry))
	}
}

// plan schedules an initiation, with quick retries after it.
func (m *Machine) plan(at time.Time) {
	m.Attempts, m.silence.attempts, m.NextTry = 0, 0, at
	if m.state != Answered && m.state != Forced {
		m.state = Due
	}
}

// force schedules an initiation soon, and discards the sessions for it.
func (m *Machine) force(at time.Time) {
	if m.state != Forced || m.NextTry.IsZero() || at.Before(m.NextTry) {
		m.NextTry = at
	}
	m.state = Forced
}

// tieBreak is how long a new path is first left to the peer, which has most likely found it at the
// same moment: two initiations that cross undo each other.
func (m *Machine) tieBreak() time.Duration {
	if m.Managed && m.Yields {
		return TieBreakDelay
	}
	return 0
}

// made handles an initiation from the device. It is sent at once if there is a path, else kept for
// one.
func (m *Machine) made(now time.Time, initiation []byte, reachable bool) {
	m.offer = offer{message: initiation, madeAt: now}
	if reachable {
		m.offer.dueAt = now
	}
}

// answered records that the device no longer accepts a response to its own initiation.
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

// undone handles two initiations that have undone each other: each side has answered the other's.
// One side dials again soon, unless the peer shows before that it has a session after all; the
// other side dials after that has had its time.
func (m *Machine) undone(now time.Time) {
	if m.Yields {
		m.force(later(m.NextTry, now.Add(firstRetry)))
	} else {
		m.force(now.Add(answerLag))
	}
}

// cookieDue makes a new initiation next: the last one carries no cookie.
func (m *Machine) cookieDue(now time.Time) {
	if m.state == Offered && !m.Session(now) {
		m.state = Forced
	}
}

// began records that a session has begun.
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

// Poll returns what to do now and when to poll again, zero for never. reachable reports whether there
// is any path to the peer, judged whether a path was selected whose silence matters.
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
	case !reachable: // only the peer can dial
		m.NextTry = time.Time{}
		m.state = Down
		if m.Session(now) {
			m.state = Up
		}
	case m.state != Forced && m.offer.message != nil && now.Sub(m.offer.madeAt) < Rekey:
		m.tried(now)
		a.Send = m.send(now)
	default:
		// A device that keeps answering initiations makes none by itself.
		a.Make, a.Force = true, m.state == Forced || m.state == Answered
		if a.Force {
			m.session, m.offer.message = lost, nil
		}
		m.tried(now)
	}
	return a, sooner(m.NextTry, m.heldUntil)
}

// tried notes a try and schedules the next: after 1, 2, 4 … 30 s plus up to a quarter. Initiations
// of both sides that cross undo each other; to keep them from crossing again, one side waits half
// as long again.
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

// sooner returns the earlier of two times, either of which may be unset.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
