package handshake

import (
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// sessionLifetime is how long a session's keys are accepted (whitepaper §6.2).
	sessionLifetime = 180 * time.Second
	// InitiationSize is the length of an initiation in bytes (whitepaper §5.4).
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

// Session reports whether there are keys that the peer may still accept.
func (m *Machine) Session(now time.Time) bool {
	return m.session != lost && !m.ShookAt.IsZero() && now.Sub(m.ShookAt) < sessionLifetime
}

// alive reports whether there is a session that is not known to be silent.
func (m *Machine) alive(now time.Time) bool { return m.NextTry.IsZero() && m.Session(now) }
