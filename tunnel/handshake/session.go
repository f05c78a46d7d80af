package handshake

import (
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// SilenceLimit is how long a peer may be sent data without an answer. WireGuard
	// itself waits 15 s. A flow in one direction only, whose receiver keeps quiet for
	// up to 10 s (whitepaper §6.5), costs a handshake by this and nothing else.
	SilenceLimit = 5 * time.Second
	// quietLimit is when whoever runs above is asked to send something that is answered for
	// sure, so that the last segment of a connection, which is not, is taken for no silence.
	quietLimit = 2 * time.Second
	// sessionLifetime is how long a session's keys are accepted (whitepaper §6.2).
	sessionLifetime = 180 * time.Second
	// Lengths in bytes of a keepalive and of an initiation (whitepaper §5.4).
	keepaliveSize  = 32
	InitiationSize = 148
)

// session says whether a handshake that the device tells of made a session.
type session uint8

const (
	// kept: it did, for 180 s.
	kept session = iota
	// lost: it was given up since, or was dead from the start. With a managed peer it is the
	// underlay that tells which handshake made another: the device also tells of those that
	// came to nothing.
	lost
)

// Status is what is known of a peer's sessions.
type Status struct {
	// Rx and Tx are the device's counters, in bytes, as last read.
	Rx, Tx uint64
	// LastHandshake is the device's, by the clock on the wall; ShookAt is when it was first
	// seen. Ages are reckoned from the latter, so that no clock that is set ends a session.
	LastHandshake, ShookAt time.Time
	// Source is the path that an authenticated packet last came over, an initiation
	// included: it is worth dialling.
	Source peer.Path
	// Proven is Source once a session has been there: initiations are authenticated
	// without the preshared key, and do not show that ours get through.
	Proven peer.Path
	// HeardAt is when the peer last answered or sent within a session.
	HeardAt time.Time
	// Attempts counts initiations since the last answer.
	Attempts int
	// NextTry is when the next one is sent; zero when none is planned.
	NextTry time.Time
}

// silence is how long what was sent has been unanswered, and what was told of it.
type silence struct {
	// since is when something that wants an answer was first sent after the last one.
	since time.Time
	told  told
	// selectedAt is since when data takes its present path, and attempts how many tries there
	// had been by then.
	selectedAt time.Time
	attempts   int
}

// told is what was told of a peer's silence since it last answered.
type told uint8

const (
	toldNothing told = iota
	toldQuiet
	toldSilent // of the selected path
)

// Reading is what the device says of a peer.
type Reading struct {
	Rx, Tx        uint64
	LastHandshake time.Time
	// Source is where the device sends to, invalid for the stand-in of the peer's paths:
	// whatever else is there was put by an authenticated packet.
	Source peer.Path
}

// Observe takes in a reading.
func (m *Machine) Observe(now time.Time, r Reading) {
	rx, tx := growth(m.Rx, r.Rx), growth(m.Tx, r.Tx)
	shook := !r.LastHandshake.IsZero() && !r.LastHandshake.Equal(m.LastHandshake)
	m.Rx, m.Tx, m.LastHandshake = r.Rx, r.Tx, r.LastHandshake
	if shook {
		m.ShookAt = now
	}
	if r.Source.IsValid() {
		m.Source = r.Source
	}
	if shook && (m.session != lost || !m.Managed) || m.Session(now) && rx%InitiationSize != 0 {
		m.heard(now)
		return
	}
	if wantsAnswer(tx) && m.silence.since.IsZero() {
		m.silence.since = now
	}
	if m.NextTry.IsZero() && !m.silence.since.IsZero() && now.Sub(m.silence.since) >= SilenceLimit {
		m.NextTry, m.state = now, Due
	}
}

// heard takes in that the peer answered, or sent within a session.
func (m *Machine) heard(now time.Time) {
	m.state, m.session, m.HeardAt, m.Proven = Up, kept, now, m.Source
	m.Attempts, m.NextTry, m.hurried, m.offer.message = 0, time.Time{}, 0, nil
	m.silence = silence{selectedAt: m.silence.selectedAt}
}

// growth of a counter, which starts over when a peer is removed and added again.
func growth(from, to uint64) uint64 {
	if to < from {
		return 0
	}
	return to - from
}

// wantsAnswer reports whether bytes sent between two readings were more than one or two
// keepalives, which nobody answers.
func wantsAnswer(tx uint64) bool { return tx != 0 && tx != keepaliveSize && tx != 2*keepaliveSize }

// Session reports whether there are keys that the peer may still accept.
func (m *Machine) Session(now time.Time) bool {
	return m.session != lost && !m.ShookAt.IsZero() && now.Sub(m.ShookAt) < sessionLifetime
}

// Unanswered is since when what was sent within a session has wanted an answer; zero when it has
// one, or nothing was sent.
func (m *Machine) Unanswered() time.Time { return m.silence.since }

// alive reports whether there is a session that has not been found silent.
func (m *Machine) alive(now time.Time) bool { return m.NextTry.IsZero() && m.Session(now) }

// Selected notes that data takes another path from now on, which is yet to be judged.
func (m *Machine) Selected(now time.Time) {
	m.silence.selectedAt, m.silence.attempts, m.silence.told = now, m.Attempts, min(m.silence.told, toldQuiet)
}

// quiet reports, once until the peer answers, that data has gone unanswered for 2 s.
func (m *Machine) quiet(now time.Time) bool {
	s := &m.silence
	if s.told != toldNothing || s.since.IsZero() || now.Sub(s.since) < quietLimit {
		return false
	}
	s.told = toldQuiet
	return true
}

// silent reports, once until the peer answers or another path is selected, that data has
// gone unanswered for 5 s over the selected path, or two initiations have.
func (m *Machine) silent(now time.Time) bool {
	s := &m.silence
	since := s.since
	if s.selectedAt.After(since) && !since.IsZero() {
		since = s.selectedAt
	}
	unanswered := !since.IsZero() && now.Sub(since) >= SilenceLimit
	if s.told == toldSilent || !unanswered && (m.Attempts-s.attempts < 2 || !m.Due(now)) {
		return false
	}
	s.told = toldSilent
	return true
}
