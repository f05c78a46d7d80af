package check

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/discovery/special"
)

// Move is a change of the addresses that others see this gateway at; the zero value is none.
type Move struct {
	Was, Now []string
	At       time.Time // when it was noticed
}

// moves remembers the addresses that others see this gateway at.
type moves struct {
	now  []string
	seen map[string]time.Time // when each was seen last
	last Move
}

// see compares the addresses with the earlier ones, and returns the last change. It takes a lost
// address and a new one. One that was there lately is not new: some NATs use several in turn.
func (m *moves) see(s catalogue.Shown, now time.Time) Move {
	var at []string
	for _, c := range s.Candidates {
		switch c.Source {
		case api.SourceHost, api.SourceSTUN, api.SourcePortmap:
			if host, ok := special.Host(c.Address); ok && special.Scope(c.Address) == "" {
				at = append(at, host.String())
			}
		}
	}
	if len(at) == 0 { // nothing is known at the moment
		return m.last
	}
	slices.Sort(at)
	at = slices.Compact(at)
	lost := slices.DeleteFunc(slices.Clone(m.now), func(a string) bool { return slices.Contains(at, a) })
	gained := slices.DeleteFunc(slices.Clone(at), func(a string) bool {
		_, before := m.seen[a]
		return before
	})
	if len(lost) > 0 && len(gained) > 0 {
		m.last = Move{Was: lost, Now: gained, At: now}
	}
	m.now = at
	if m.seen == nil {
		m.seen = map[string]time.Time{}
	}
	for _, a := range at {
		m.seen[a] = now
	}
	for a, seen := range m.seen {
		if now.Sub(seen) >= recentFor {
			delete(m.seen, a)
		}
	}
	return m.last
}
