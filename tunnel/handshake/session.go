package handshake

import (
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// SilenceLimit is how long a peer may be sent data without an answer. WireGuard itself waits 15
	// s. A one-way flow, whose receiver may be silent for up to 10 s (whitepaper §6.5), merely
	// causes a handshake.
	SilenceLimit = 5 * time.Second
	// quietLimit is when the layer above is asked to send something that is certainly answered.
	// Otherwise the last segment of a connection, which is not answered, would look like silence.
	quietLimit = 2 * time.Second
	// sessionLifetime is how long a session's keys are accepted (whitepaper §6.2).
	sessionLifetime = 180 * time.Second
	// Lengths in bytes of a keepalive and an initiation (whitepaper §5.4).
	keepaliveSize  = 32
	InitiationSize = 148
)

// session reports whether a handshake reported by the device made a session.
type session uint8

const (
	// kept: it did, for 180 s.
	kept session = iota
	// lost: it has been discarded since, or was dead from the start. For a managed peer the
	// underlay tells which handshake made a session, since the device also reports those that came
	// to nothing.
	lost
)

// Status is what is known about a peer's sessions.
type Status struct {
	// Rx and Tx are the device's counters, in bytes, as last read.
	Rx, Tx uint64
	// LastHandshake is the device's, by the wall clock; ShookAt is when it was first seen. Ages are
	// computed from the latter, so that setting the clock ends no session.
	LastHandshake, ShookAt time.Time
	// Source is the path on which an authenticated packet last arrived, including initiations: it
	// is worth dialling.
	Source peer.Path
	// Proven is Source once a session has used it. Initiations are authenticated without the
	// preshared key, and do not prove that ours get through.
	Proven peer.Path
	// HeardAt is when the peer last answered or sent in a session.
	HeardAt time.Time
	// Attempts counts initiations since the last answer.
	Attempts int
	// NextTry is when the next one is sent; zero if none is planned.
	NextTry time.Time
}

// silence is how long what was sent has gone unanswered, and what was reported about it.
type silence struct {
	// since is when a packet that wants an answer was first sent after the last answer.
	since    time.Time
	reported reported
	// selectedAt is since when data takes its current path, and attempts the number of tries by
	// then.
	selectedAt time.Time
	attempts   int
}

// reported is what was reported about a peer's silence since it last answered.
type reported uint8

const (
	reportedNothing reported = iota
	reportedQuiet
	reportedSilent // of the selected path
)

// Reading is what the device reports about a peer.
type Reading struct {
	Rx, Tx        uint64
	LastHandshake time.Time
	// Source is where the device sends to, invalid for the stand-in of the peer's paths: anything
	// else was set by an authenticated packet.
	Source peer.Path
}

// Observe handles a reading.
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

// heard records that the peer answered, or sent in a session.
func (m *Machine) heard(now time.Time) {
	m.state, m.session, m.HeardAt, m.Proven = Up, kept, now, m.Source
	m.Attempts, m.NextTry, m.quickTries, m.offer.message = 0, time.Time{}, 0, nil
	m.silence = silence{selectedAt: m.silence.selectedAt}
}

// growth returns how much a counter grew; it restarts when a peer is removed and added again.
func growth(from, to uint64) uint64 {
	if to < from {
		return 0
	}
	return to - from
}

// wantsAnswer reports whether the bytes sent between two readings were more than one or two
// keepalives, which get no answer.
func wantsAnswer(tx uint64) bool { return tx != 0 && tx != keepaliveSize && tx != 2*keepaliveSize }

// Session reports whether there are keys that the peer may still accept.
func (m *Machine) Session(now time.Time) bool {
	return m.session != lost && !m.ShookAt.IsZero() && now.Sub(m.ShookAt) < sessionLifetime
}

// Unanswered is since when a packet sent in a session has been waiting for an answer; zero if none
// is.
func (m *Machine) Unanswered() time.Time { return m.silence.since }

// alive reports whether there is a session that is not known to be silent.
func (m *Machine) alive(now time.Time) bool { return m.NextTry.IsZero() && m.Session(now) }

// Selected notes that data takes another path from now on, which is yet to be judged.
func (m *Machine) Selected(now time.Time) {
	m.silence.selectedAt, m.silence.attempts, m.silence.reported = now, m.Attempts, min(m.silence.reported, reportedQuiet)
}

// quiet reports, once until the peer answers, that data has gone unanswered for 2 s.
func (m *Machine) quiet(now time.Time) bool {
	s := &m.silence
	if s.reported != reportedNothing || s.since.IsZero() || now.Sub(s.since) < quietLimit {
		return false
	}
	s.reported = reportedQuiet
	return true
}

// silent reports, once until the peer answers or another path is selected, that data has gone
// unanswered for 5 s on the selected path, or two initiations have.
func (m *Machine) silent(now time.Time) bool {
	s := &m.silence
	since := s.since
	if s.selectedAt.After(since) && !since.IsZero() {
		since = s.selectedAt
	}
	unanswered := !since.IsZero() && now.Sub(since) >= SilenceLimit
	if s.reported == reportedSilent || !unanswered && (m.Attempts-s.attempts < 2 || !m.Due(now)) {
		return false
	}
	s.reported = reportedSilent
	return true
}
