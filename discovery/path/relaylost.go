package path

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// RelayLost says that a relay that joined the two sides has lost their allocations, as when
// it is restarted: the own one has another address there now, and no way is left to tell
// the peer, which is searched for then (sweep.go).
type RelayLost struct {
	Server   string         // the relay, for people
	Was, Now netip.AddrPort // the own relayed addresses
	At       time.Time      // when the own allocation was found gone
}

// String says so in words, and what helps.
func (l RelayLost) String() string {
	return fmt.Sprintf("the relay %s lost the allocations that joined both sides (it was restarted): this gateway has another address there now, and nothing is left to tell the peer; "+
		"each side asks the relay's ports for the other, a new ticket joins them too, and with a second relay at both ends (spec.discovery.turnServers) it does not come to this", l.Server)
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
	return &l
}
