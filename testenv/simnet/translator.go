package simnet

import (
	"net/netip"
	"time"
)

// translator is the NAT model: it takes addresses and the time, and returns addresses or a
// reason. It has no clock and no goroutine, and is not safe for concurrent use.
type translator struct {
	Behaviour
	dice *dice
	// outside are the NAT's own addresses. An inside address always gets the same one of its
	// family ("paired" pooling, RFC 4787 §4.1).
	outside []netip.Addr

	byInside  map[insideKey]*mapping
	byOutside map[netip.AddrPort][]*mapping
	// strays are the conntrack entries of unsolicited datagrams, with their expiry.
	strays   map[stray]time.Time
	nextPort uint16 // of SequentialPorts
	swept    time.Time
}

// insideKey identifies the mapping of an outbound datagram. remote is the part of the destination
// on which the mapping depends: nothing, an address with port 0, or all.
type insideKey struct {
	inside, remote netip.AddrPort
}

// stray is an unsolicited datagram's flow.
type stray struct {
	remote, outside netip.AddrPort
}

// mapping maps an inside endpoint to an outside one, for the remote of its key.
type mapping struct {
	insideKey
	outside netip.AddrPort
	expires time.Time
	static  bool // a port forward: never expires, filters nothing
	// sessions are the remote endpoints that the inside endpoint sent to.
	sessions map[netip.AddrPort]*session
}

type session struct {
	expires time.Time
	replied bool
}

// sweepInterval bounds how long expired entries remain in memory.
const sweepInterval = 10 * time.Second

func newTranslator(b Behaviour, d *dice, outside []netip.Addr) *translator {
	t := &translator{Behaviour: b, dice: d, outside: outside, nextPort: b.PortMin}
	t.reboot()
	return t
}

// reboot drops everything but the port forwards.
func (t *translator) reboot() {
	forwards := t.forwards()
	t.byInside = make(map[insideKey]*mapping)
	t.byOutside = make(map[netip.AddrPort][]*mapping)
	t.strays = make(map[stray]time.Time)
	for _, m := range forwards {
		t.insert(m)
	}
}

// forwards returns the port forwards.
func (t *translator) forwards() []*mapping {
	var out []*mapping
	for _, ms := range t.byOutside {
		for _, m := range ms {
			if m.static {
				out = append(out, m)
			}
		}
	}
	return out
}

// outbound translates the source of an outbound datagram.
func (t *translator) outbound(now time.Time, src, dst netip.AddrPort) (netip.AddrPort, Reason) {
	t.sweep(now)
	m := t.find(now, src, dst)
	if m != nil && !m.static && t.poisoned(now, m, dst) {
		m = nil
	}
	if m == nil {
		var reason Reason
		if m, reason = t.allocate(now, src, dst); reason != "" {
			return netip.AddrPort{}, reason
		}
	}
	t.touch(now, m, dst)
	return m.outside, ""
}

// find returns the live mapping for an outbound datagram: the one that a poisoned NAT made only
// for this destination, a port forward, or the regular one.
func (t *translator) find(now time.Time, src, dst netip.AddrPort) *mapping {
	for _, remote := range [...]netip.AddrPort{dst, {}, t.mapKey(dst)} {
		m := t.byInside[insideKey{src, remote}]
		if m == nil || !m.alive(now) {
			continue
		}
		if m.static || remote == dst || remote == t.mapKey(dst) {
			return m
		}
	}
	return nil
}

// mapKey returns the part of a destination on which the mapping depends.
func (t *translator) mapKey(dst netip.AddrPort) netip.AddrPort {
	switch t.Mapping {
	case EndpointIndependent:
		return netip.AddrPort{}
	case AddressDependent:
		return netip.AddrPortFrom(dst.Addr(), 0)
	default:
		return dst
	}
}

// poisoned reports whether a stray's entry prevents a new session of m.
func (t *translator) poisoned(now time.Time, m *mapping, dst netip.AddrPort) bool {
	s := m.sessions[dst]
	return (s == nil || !s.expires.After(now)) && t.strays[stray{dst, m.outside}].After(now)
}

// touch refreshes the session of an outbound datagram (RFC 4787 REQ-6).
func (t *translator) touch(now time.Time, m *mapping, dst netip.AddrPort) {
	s := m.sessions[dst]
	if s == nil {
		s = new(session)
		m.sessions[dst] = s
	}
	if !s.expires.After(now) {
		s.replied = false // the old session is over; this is a new one
	}
	s.renew(now, t.lifetime(s))
	m.renew(s.expires)
}

// inbound translates the destination of a datagram that arrives at one of the NAT's addresses.
func (t *translator) inbound(now time.Time, remote, outside netip.AddrPort) (netip.AddrPort, Reason) {
	t.sweep(now)
	var best *mapping
	bestRank, live := 0, false
	for _, m := range t.byOutside[outside] {
		if !m.alive(now) {
			continue
		}
		live = true
		if r := t.admits(now, m, remote); r > bestRank {
			best, bestRank = m, r
		}
	}
	switch {
	case best != nil:
		t.answered(now, best, remote)
		return best.inside, ""
	case t.AnswersStrays:
		return netip.AddrPort{}, t.keepStray(now, stray{remote, outside})
	case live:
		return netip.AddrPort{}, DropFiltered
	default:
		return netip.AddrPort{}, DropNoMapping
	}
}

// admits ranks how well a mapping fits an inbound datagram: 0 if its filter refuses, higher for a
// session with exactly that endpoint than for one with its address.
func (t *translator) admits(now time.Time, m *mapping, remote netip.AddrPort) int {
	if s := m.sessions[remote]; s != nil && s.expires.After(now) {
		return 3
	}
	filtering := t.Filtering
	if m.static {
		filtering = EndpointIndependent
	}
	if filtering != AddressAndPortDependent {
		for r, s := range m.sessions {
			if r.Addr() == remote.Addr() && s.expires.After(now) {
				return 2
			}
		}
	}
	if filtering == EndpointIndependent {
		return 1
	}
	return 0
}

// answered records an inbound datagram that was let in.
func (t *translator) answered(now time.Time, m *mapping, remote netip.AddrPort) {
	s := m.sessions[remote]
	if s != nil && s.expires.After(now) {
		s.replied = true
	}
	if t.OutboundRefreshOnly || m.static {
		return
	}
	if s != nil && s.expires.After(now) {
		s.renew(now, t.Timeout)
	}
	m.renew(now.Add(t.Timeout))
}

// keepStray creates or refreshes a stray's entry. The router's own reply does not count as one:
// it is an ICMP error.
func (t *translator) keepStray(now time.Time, s stray) Reason {
	if _, known := t.strays[s]; !known && len(t.byInside)+len(t.strays) >= t.MaxMappings {
		return DropTableFull
	}
	t.strays[s] = now.Add(t.Unreplied)
	return DropStray
}

// forward maps an outside port to an inside endpoint permanently, in both directions.
func (t *translator) forward(outside, inside netip.AddrPort) {
	t.unforward(outside)
	t.insert(&mapping{
		insideKey: insideKey{inside: inside}, outside: outside, static: true,
		sessions: make(map[netip.AddrPort]*session),
	})
}

// unforward removes a port forward and reports whether there was one.
func (t *translator) unforward(outside netip.AddrPort) bool {
	for _, m := range t.byOutside[outside] {
		if m.static {
			t.remove(m)
			return true
		}
	}
	return false
}

func (t *translator) lifetime(s *session) time.Duration {
	if s.replied {
		return t.Timeout
	}
	return t.Unreplied
}

// renew extends a session; it never shortens one.
func (s *session) renew(now time.Time, d time.Duration) {
	if e := now.Add(d); e.After(s.expires) {
		s.expires = e
	}
}

func (m *mapping) renew(e time.Time) {
	if e.After(m.expires) {
		m.expires = e
	}
}

func (m *mapping) alive(now time.Time) bool { return m.static || m.expires.After(now) }
