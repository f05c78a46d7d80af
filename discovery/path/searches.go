package path

import (
	"slices"
	"time"
)

const (
	// searchWait is when who waits for its turn looks again, for each that is before it, up
	// to searchWaitMax: then a thousand that wait are polled 200 times a second.
	searchWait    = 500 * time.Millisecond
	searchWaitMax = 5 * time.Second
	// searchLost is after how long without a poll somebody loses its place.
	searchLost = 2 * searchWaitMax
)

// Searches has machines take turns in asking the ports of relays for their peers: one
// machine at a time, one round each, in the order in which they came. It is guarded by what
// guards the machines.
type Searches struct {
	line []searcher // the first has the turn
}

type searcher struct {
	m    *Machine
	seen time.Time
}

// turn says whether it is a machine's turn, which is 0 then, and else when to ask again. Who
// does not is taken for gone.
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
