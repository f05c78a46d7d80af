package path

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Where probes pass and data does not, perhaps only one side notices. The other still hears its
// peer, on the path that the peer has moved to, and sends into the void. So the side that notices
// says so on the path in question, where probes do pass.
const (
	deafProbes = 3
	deafEvery  = 100 * time.Millisecond
)

// deafness is a report to send, and its pair.
type deafness struct {
	pair *pair
	left int
	due  time.Time
}

// sayDeaf tells the peer that data does not pass on a pair.
func (m *Machine) sayDeaf(p *pair) { m.deaf = deafness{pair: p, left: deafProbes, due: m.now} }

// deafDue returns the pair to send the report on now, nil for none.
func (m *Machine) deafDue() *pair {
	d := &m.deaf
	if d.left > 0 && (d.pair.state == Frozen || !slices.Contains(m.pairs, d.pair)) {
		*d = deafness{}
	}
	if d.left == 0 || !m.at(d.due) {
		return nil
	}
	return d.pair
}

func (m *Machine) deafSaid() {
	m.deaf.left--
	m.deaf.due = m.now.Add(deafEvery)
}

// Deserted handles the peer's report that it has left a path, since data does not pass there
// although probes do: see [FlagDeaf]. If that is the selected path and another one works, it is
// left here too.
func (m *Machine) Deserted(now time.Time, from peer.Path) {
	m.advance(now)
	p := m.find(from)
	if p == nil || p != m.sel || p.barred(m.now) || !m.hasReserve() {
		return
	}
	m.silent = m.now
	p.bar(m.now)
	m.move(p, Suspect, "the peer has left it, since data does not pass there")
	m.reviveAll("the peer has left the selected path")
}

// hasReserve reports whether another pair could be selected at once.
func (m *Machine) hasReserve() bool {
	for _, p := range m.pairs {
		if p != m.sel && m.usable(p) {
			return true
		}
	}
	return false
}
