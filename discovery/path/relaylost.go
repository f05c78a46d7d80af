package path

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// RelayLost says that a relay that joined the two sides has lost their allocations, as when
// it is restarted: our own has another address there now, and so has the peer's, which
// is searched for then (sweep.go).
type RelayLost struct {
	Server    string         // the relay, for people
	Was, Now  netip.AddrPort // our own relayed addresses
	At        time.Time      // when our own allocation was found gone
	Searching bool           // the relay's ports are asked for the peer, or its turn is waited for
	Next      time.Time      // of the next round, between two; else zero
	Ended     bool           // there is none any more
}

// String says so in words, and what helps.
func (l RelayLost) String() string {
	search := "the peer cannot be searched for there at present"
	switch {
	case l.Searching:
		search = "the peer is searched for at the relay's ports"
	case !l.Next.IsZero():
		search = "the peer is searched for at the relay's ports (next round at " + l.Next.UTC().Format(time.RFC3339) + ")"
	case l.Ended:
		search = "the search for the peer at the relay's ports has ended"
	}
	return fmt.Sprintf("the relay %s lost the allocations that joined both sides (it was restarted), and each has another address there now: %s; "+
		"a new ticket joins them at once, and a second relay at both ends (spec.discovery.turnServers) avoids it", l.Server, search)
}

// lastPath is the path that was lost last.
type lastPath struct {
	peer.Path
	class class
}

// needed says whether a path led over one of our allocations, or straight to the peer's on
// the same server.
func (p lastPath) needed(r Relay) bool {
	return p.class == classRelayed && (p.Via == r.Via || p.Via == "" && p.Remote.Addr() == r.Addr.Addr().Unmap())
}

// watchRelays notes when an allocation goes that the path needed, and when the server has
// given another.
func (m *Machine) watchRelays(before, now []Relay) {
	last := m.last
	if m.sel != nil {
		last = lastPath{m.sel.path, m.sel.class}
	}
	for _, r := range before {
		if !hasRelay(now, r.Via) && last.needed(r) {
			m.lost = &RelayLost{Server: r.Server, Was: r.Addr, At: m.now}
		}
	}
	for _, r := range now {
		if m.lost != nil && r.Server == m.lost.Server {
			m.lost.Now = r.Addr
		}
	}
	if m.lost != nil && m.lost.Now == m.lost.Was {
		m.lost = nil // It was there still.
	}
}

// relayLost is what is known of such a loss, nil when there is a path or another reason.
func (m *Machine) relayLost() *RelayLost {
	if m.sel != nil || m.lost == nil || !m.lost.Now.IsValid() {
		return nil
	}
	l := *m.lost
	switch next := m.nextSweep(); {
	case next.IsZero():
		l.Ended = m.sweep.ended && m.sweep.own == l.Now
	case m.sweep.done > 0 || !next.After(m.now):
		l.Searching = true
	default:
		l.Next = next
	}
	return &l
}
