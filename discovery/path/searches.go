package path

import (
	"slices"
	"time"
)

const (
	// searchWait is the waiting time for each searcher ahead in the line, up to searchWaitMax: a
	// thousand waiting machines are then polled 200 times a second.
	searchWait    = 500 * time.Millisecond
	searchWaitMax = 5 * time.Second
	// searchLost is how long a searcher may go without a poll before it loses its place.
	searchLost = 2 * searchWaitMax
)

// Searches makes machines take turns in probing the ports of relays for their peers: one machine at
// a time, one round each, first come, first served. It is guarded by the lock of the machines.
type Searches struct {
	line []searcher // the first has the turn
}

type searcher struct {
	m    *Machine
	seen time.Time
}

// turn returns 0 if it is the machine's turn, else when to ask again. A machine that does not ask
// loses its place.
func (s *Searches) turn(m *Machine) (wait time.Duration) {
	s.line = slices.DeleteFunc(s.line, func(o searcher) bool { return o.m != m && m.now.Sub(o.seen) > searchLost })
	place := slices.IndexFunc(s.line, func(o searcher) bool { return o.m == m })
	if place < 0 {
		place = len(s.line)
		s.line = append(s.line, searcher{m: m})
	}
	s.line[place].seen = m.now
	return min(time.Duration(place)*searchWait, searchWaitMax)
}

// Leave gives up a machine's turn, or its place in the line.
func (s *Searches) Leave(m *Machine) {
	s.line = slices.DeleteFunc(s.line, func(o searcher) bool { return o.m == m })
}
