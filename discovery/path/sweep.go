package path

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// A restarted relay has forgotten the allocations of both sides, and gives each a new random port.
// If it was the only path, neither side can tell the other. But both know the relay, and each
// allocation lets in what comes from the relay's own address. So each side probes those ports from
// its own allocation, and the first probe that hits the peer's allocation shows the peer where we
// are. For other allocations it is a datagram that nobody understands.
//
// One side goes up and the other down, so they meet after a third of the ports on average.
const (
	// sweepBatch every sweepEvery is 4,000 probes/s of 144 bytes as IP packets: 4.6 Mbit/s for the
	// 4.1 s that all 16,384 ports take. Searches for several peers take turns ([Searches]), so it
	// is never more.
	sweepBatch = 40
	sweepEvery = 10 * time.Millisecond
	// Ports of the dynamic range (RFC 6335 §6) are what TURN servers allocate by default (RFC 8656
	// §7.2). If the peer's last port was in another range, the ports around it are probed.
	sweepFrom, sweepTo = 49152, 65535
	sweepAround        = 4096
	sweepLeast         = 1024
	// sweepAfter is how long a new allocation gets to admit packets from the relay.
	sweepAfter = 200 * time.Millisecond
	// sweepRest is how long to wait for a peer that was heard.
	sweepRest = 3 * time.Second
	// sweepNoted is how many rounds are noted in the history.
	sweepNoted = 2
)

// sweepRests are the pauses between rounds. The one probe that counts may have been lost; the peer
// may have allocated later, or be away. After the last round the search ends, until our own
// allocation changes or the peer has a new address. So a peer that stays away costs seven rounds of
// 2.36 MB as IP packets, 16.5 MB in the first 7 h 12 min, and nothing on the days after that.
var sweepRests = []time.Duration{
	500 * time.Millisecond, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour,
}

// sweep is the progress of the search for the peer's new port.
type sweep struct {
	own      netip.AddrPort // the allocation to probe from
	from, to uint16
	done     int // ports probed in this round
	rounds   int
	due      time.Time
	ended    bool
	known    []netip.AddrPort // the peer's addresses when the search ended
}

// sweepPorts returns the probes of a search that are due.
func (m *Machine) sweepPorts() []Probe {
	via, was := m.sweepable()
	if via == "" {
		m.o.Searches.Leave(m)
		return nil
	}
	s := &m.sweep
	if s.own != m.lost.Now || s.ended && m.remote.beyond(s.known) {
		*s = sweep{own: m.lost.Now, due: m.now.Add(sweepAfter)}
		s.from, s.to = sweepRange(was.Port())
	}
	if s.ended {
		return nil
	}
	if heard := m.lastHeard(); !heard.Before(m.lost.At) {
		s.due = later(s.due, heard.Add(sweepRest))
	}
	if !m.at(s.due) {
		if s.due.Sub(m.now) > sweepEvery {
			m.o.Searches.Leave(m)
		}
		return nil
	}
	if wait := m.o.Searches.turn(m); wait > 0 {
		m.at(m.now.Add(wait))
		return nil
	}
	if s.done == 0 && s.rounds < sweepNoted {
		m.note("asking the ports of the relay "+m.lost.Server,
			fmt.Sprintf("the peer's allocation was at %s, and has another port since the relay was restarted", was))
	}
	probes := make([]Probe, 0, sweepBatch)
	for len(probes) < sweepBatch && s.done <= int(s.to)-int(s.from) {
		port := s.from + uint16(s.done)
		if !m.o.Low {
			port = s.to - uint16(s.done)
		}
		s.done++
		if port != s.own.Port() {
			probes = append(probes, Probe{Path: peer.Path{Via: via, Remote: netip.AddrPortFrom(was.Addr(), port)}})
		}
	}
	s.due = m.now.Add(sweepEvery)
	if s.done > int(s.to)-int(s.from) {
		m.endSweepRound()
	}
	if !s.ended {
		m.at(s.due)
	}
	return probes
}

// endSweepRound schedules the next round of the search, or ends it.
func (m *Machine) endSweepRound() {
	m.o.Searches.Leave(m)
	s := &m.sweep
	s.done = 0
	s.rounds++
	if s.rounds <= len(sweepRests) {
		s.due = m.now.Add(sweepRests[s.rounds-1])
		return
	}
	s.ended, s.known = true, m.remote.addrs()
	m.note("the search among the ports of the relay "+m.lost.Server+" has ended",
		fmt.Sprintf("the peer was not found in %s; it begins again when this gateway's allocation there or the peer's addresses change", count(s.rounds, "round")))
}

// sweepable returns the allocation to search from and where the peer's was, or "" if there is
// nothing to search for: there is a path, or no relay lost anything.
func (m *Machine) sweepable() (via string, was netip.AddrPort) {
	l := m.lost
	if l == nil || !l.Now.IsValid() || m.sel != nil && m.sel.state != Suspect {
		return "", netip.AddrPort{}
	}
	for _, r := range m.local.Relays {
		if r.Addr == l.Now {
			via = r.Via
		}
	}
	was = m.peerAt(l.Now.Addr().Unmap())
	if !was.IsValid() {
		return "", was
	}
	return via, was
}

// peerAt returns the peer's last allocation at a relay's address.
func (m *Machine) peerAt(relay netip.Addr) netip.AddrPort {
	last := m.last
	if m.sel != nil {
		last = lastPath{m.sel.path, m.sel.class}
	}
	if last.class == classRelayed && last.Remote.Addr() == relay {
		return last.Remote
	}
	for _, c := range m.remote.list() {
		if c.Source == SourceRelay && c.Addr.Addr() == relay {
			return c.Addr
		}
	}
	return netip.AddrPort{}
}

// sweepRange returns the ports to probe if the peer had one of them.
func sweepRange(port uint16) (from, to uint16) {
	if port >= sweepFrom {
		return sweepFrom, sweepTo
	}
	return uint16(max(int(port)-sweepAround, sweepLeast)), uint16(int(port) + sweepAround)
}

// lastHeard is when the peer's last probe arrived.
func (m *Machine) lastHeard() time.Time {
	if len(m.pairs) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(m.pairs, func(a, b *pair) int { return a.heard.Compare(b.heard) }).heard
}

// nextSweep is when the search continues, zero if there is none or it has ended.
func (m *Machine) nextSweep() time.Time {
	switch via, _ := m.sweepable(); {
	case via == "":
		return time.Time{}
	case m.sweep.own != m.lost.Now:
		return m.now
	case m.sweep.ended:
		return time.Time{}
	}
	return m.sweep.due
}
