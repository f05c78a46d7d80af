package path

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// RelayLost says that a relay between the two sides has lost their allocations, for example by a
// restart. Our new allocation has another address, and so has the peer's, which is then searched
// for (sweep.go).
type RelayLost struct {
	Server    string         // the relay, for display
	Was, Now  netip.AddrPort // our own relayed addresses
	At        time.Time      // when our own allocation was found lost
	Searching bool           // the relay's ports are being probed for the peer, or will be at its turn
	Next      time.Time      // of the next round, while between two; else zero
	Ended     bool           // the search is over
}

// String describes it, and what helps.
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

// needed reports whether a path used one of our allocations, or went directly to the peer's on the
// same server.
func (p lastPath) needed(r Relay) bool {
	return p.class == classRelayed && (p.Via == r.Via || p.Via == "" && p.Remote.Addr() == r.Addr.Addr().Unmap())
}

// watchRelays notes when an allocation that the path needed goes, and when the server gives a new
// one.
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
		m.lost = nil // it was still there
	}
}

// foundAgain forgets such a loss once the selected path has worked since. The next best one may have
// ended with the allocations, too, without anybody knowing.
func (m *Machine) foundAgain() {
	if m.sel != nil && m.lost != nil && m.sel.proven().After(m.lost.At) {
		m.lost = nil
	}
}

// relayLost returns what is known about such a loss, nil if there is a path or another reason.
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
