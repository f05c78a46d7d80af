package path

import (
	"cmp"
	"errors"
	"net/netip"
	"syscall"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// pace is the least time between two probes to the peer, on any path.
	pace = 50 * time.Millisecond
	// lateAnswer is how long to wait for an answer.
	lateAnswer = 10 * time.Second
)

// sender numbers probes, remembers them until they are answered, and paces them.
type sender struct {
	lastID  uint64
	next    time.Time // no probe before
	waiting []*asked  // in order of sending; bounded by pace and lateAnswer
	byTx    map[stunwire.TxID]*asked
}

// asked is a probe that was returned by Poll.
type asked struct {
	id   uint64
	pair *pair
	at   time.Time
	size int
	tx   stunwire.TxID
}

func newSender() sender { return sender{byTx: make(map[stunwire.TxID]*asked)} }

// remember records a probe that is being returned.
func (s *sender) remember(now time.Time, p *pair, size int) uint64 {
	for len(s.waiting) > 0 && now.Sub(s.waiting[0].at) > lateAnswer {
		delete(s.byTx, s.waiting[0].tx)
		s.waiting = s.waiting[1:]
	}
	s.lastID++
	s.waiting = append(s.waiting, &asked{id: s.lastID, pair: p, at: now, size: size})
	s.next = now.Add(pace)
	return s.lastID
}

func (s *sender) find(id uint64) *asked {
	for _, a := range s.waiting {
		if a.id == id {
			return a
		}
	}
	return nil
}

// urgency ranks pairs that are due, most urgent first.
func (m *Machine) urgency(p *pair) int {
	switch {
	case p == m.sel:
		return 0
	case !p.proven().IsZero() || m.now.Sub(p.heard) < lateAnswer:
		return 1 // the peer is there
	default:
		return 2
	}
}

// nextProbe returns the most urgent due probe, at most one every pace: NAT openers first, then by
// urgency the pair that has waited longest, then sizes.
func (m *Machine) nextProbe() (Probe, bool) {
	var urgent *pair
	for _, p := range m.pairs {
		if p.state == Frozen || p.due.IsZero() || !m.at(p.due) {
			continue
		}
		if urgent == nil || cmp.Or(m.urgency(p)-m.urgency(urgent), p.due.Compare(urgent.due)) < 0 {
			urgent = p
		}
	}
	opener, ttl := m.openerDue()
	sized, size := m.sizeDue()
	deaf := m.deafDue()
	if opener == nil && deaf == nil && urgent == nil && sized == nil || !m.at(m.sender.next) {
		return Probe{}, false
	}
	var out Probe
	switch {
	case opener != nil:
		m.openerSent()
		out = m.hand(opener, 0)
		out.TTL = ttl
	case deaf != nil:
		m.deafSaid()
		out = m.hand(deaf, 0)
		out.Flags = FlagDeaf
	case urgent != nil:
		m.afterProbe(urgent)
		out = m.hand(urgent, 0)
	default:
		m.sizeSent(sized)
		out = m.hand(sized, size)
		out.DontFragment = true
	}
	m.at(m.sender.next)
	return out, true
}

func (m *Machine) hand(p *pair, size int) Probe {
	return Probe{ID: m.sender.remember(m.now, p, size), Path: p.path, Size: size, PathID: p.id}
}

// Sent reports what became of a probe: its transaction, or an error. Call it before the answer can
// arrive; if the write then fails, call it again with the error.
func (m *Machine) Sent(now time.Time, id uint64, tx stunwire.TxID, err error) {
	m.advance(now)
	a := m.sender.find(id)
	if a == nil {
		return
	}
	if err == nil {
		a.at, a.tx = m.now, tx
		m.sender.byTx[tx] = a
		return
	}
	delete(m.sender.byTx, a.tx)
	p := a.pair
	switch {
	case a.size > 0:
		m.tooLarge(p, a.size)
	case p.state == Probing:
		m.move(p, Failed, unsent(err))
	case p.works() && m.judged(p):
		m.move(p, Suspect, unsent(err))
	default:
	}
}

// unsent says why a probe was not sent. The operating system's reason is enough: the path's address
// is shown beside it.
func unsent(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	return "cannot be sent: " + err.Error()
}

// Answered handles the authenticated answer to a probe, with the path it arrived on and our own
// address as the peer saw it. An answer on another path than its probe proves nothing.
func (m *Machine) Answered(now time.Time, tx stunwire.TxID, from peer.Path, mapped netip.AddrPort) {
	m.advance(now)
	a := m.sender.byTx[tx]
	if a == nil || a.pair.path != from || m.find(from) != a.pair || m.now.Sub(a.at) > lateAnswer {
		return
	}
	delete(m.sender.byTx, tx)
	p, rtt := a.pair, m.now.Sub(a.at)
	p.answered, p.mapped = m.now, mapped
	p.answers++
	p.sample(rtt)
	if p == m.sel {
		m.trips.add(rtt)
	}
	if a.size > 0 {
		m.crossed(p, a.size)
	}
	if !m.probing {
		m.probing = true
		m.doubtHandshakes()
	}
	m.answer(p, "answered in "+roughly(rtt))
	m.afterAnswer(p)
}

// answer makes a pair that answered a probe usable.
func (m *Machine) answer(p *pair, how string) {
	switch {
	case p.works():
	case p.barred(m.now): // probes prove nothing for it
	case p == m.sel:
		m.move(p, Selected, "answers again")
	default:
		m.move(p, Valid, how)
	}
}

// doubtHandshakes is called when the peer turns out to answer probes: pairs that only a handshake
// has proven must now answer them too.
func (m *Machine) doubtHandshakes() {
	for _, p := range m.pairs {
		if p.works() && p.answered.IsZero() {
			m.startRound(p, "proven by a handshake alone, and the peer answers probes elsewhere")
		}
	}
}
