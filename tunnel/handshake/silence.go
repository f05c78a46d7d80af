package handshake

import "time"

const (
	// SilenceLimit is how long a peer may be sent data without an answer. WireGuard itself waits 15
	// s. A one-way flow, whose receiver may be silent for up to 10 s (whitepaper §6.5), merely
	// causes a handshake.
	SilenceLimit = 5 * time.Second
	// quietLimit is when the layer above is asked to send something that is certainly answered.
	// Otherwise the last segment of a connection, which is not answered, would look like silence.
	quietLimit = 2 * time.Second
	// keepaliveSize is the length of a keepalive in bytes (whitepaper §5.4).
	keepaliveSize = 32
)

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

// wantsAnswer reports whether the bytes sent between two readings were more than one or two
// keepalives, which get no answer.
func wantsAnswer(tx uint64) bool { return tx != 0 && tx != keepaliveSize && tx != 2*keepaliveSize }

// Unanswered is since when a packet sent in a session has been waiting for an answer; zero if none
// is.
func (m *Machine) Unanswered() time.Time { return m.silence.since }

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
