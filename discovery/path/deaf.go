package path

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Where probes pass and data does not, only one side may notice: the other still hears
// its peer, by the path that the peer has moved to, and sends into the void. The side that
// notices therefore says so over the path in question, where probes pass after all.
const (
	deafProbes = 3
	deafEvery  = 100 * time.Millisecond
)

// deafness is what is still to be said, and over which pair.
type deafness struct {
	pair *pair
	left int
	due  time.Time
}

// sayDeaf has the peer told that data does not pass over a pair.
func (m *Machine) sayDeaf(p *pair) { m.deaf = deafness{pair: p, left: deafProbes, due: m.now} }

// deafDue gives the pair over which the peer is to be told now, nil for none.
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

// Deserted tells that the peer has left a path, since data does not pass there though
// probes do: see [FlagDeaf]. When that is the selected path and another works, it is left
// here too.
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

// hasReserve says whether another pair could be selected at once.
func (m *Machine) hasReserve() bool {
	for _, p := range m.pairs {
		if p != m.sel && m.usable(p) {
			return true
		}
	}
	return false
}
