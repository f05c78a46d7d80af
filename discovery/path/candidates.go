package path

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Bounds on what a peer can make us store and send to.
const (
	maxPerSource = 6 // remote candidates from one source
	maxReflexive = 4 // pairs without a candidate: learned from the peer's packets, or withdrawn
	maxPermitted = 16
	// permitEvery is how often another address is admitted after maxPermitted in a row. Each is a
	// request to every relay, which remembers it for minutes, and a peer may announce ever new ones.
	permitEvery = 10 * time.Second
	// linger is how long a withdrawn candidate is still tried, and a failed peer-reflexive one is
	// remembered.
	linger = 5 * time.Minute
)

// remotes merges the peer's candidates: given, announced, and recently withdrawn ones.
type remotes struct {
	given     []Candidate
	announced []Candidate
	withdrawn []withdrawn // latest first
}

type withdrawn struct {
	Candidate
	until time.Time
}

// give replaces the candidates from tickets, the configuration or the last run.
func (r *remotes) give(cs []Candidate) { r.given = sanitize(cs, false) }

// announce replaces the candidates that the peer announced.
func (r *remotes) announce(now time.Time, cs []Candidate) {
	fresh := sanitize(cs, true)
	var gone []withdrawn
	for _, c := range r.announced {
		if !slices.Contains(fresh, c) {
			gone = append(gone, withdrawn{c, now.Add(linger)})
		}
	}
	for _, w := range r.withdrawn {
		if !slices.Contains(fresh, w.Candidate) && w.until.After(now) {
			gone = append(gone, w)
		}
	}
	r.announced = fresh
	r.withdrawn = gone[:min(len(gone), maxPerSource*len(sourceOrder))]
}

// expire forgets candidates withdrawn long ago. next is when more are due.
func (r *remotes) expire(now time.Time) (changed bool, next time.Time) {
	before := len(r.withdrawn)
	r.withdrawn = slices.DeleteFunc(r.withdrawn, func(w withdrawn) bool { return !w.until.After(now) })
	for _, w := range r.withdrawn {
		if next.IsZero() || w.until.Before(next) {
			next = w.until
		}
	}
	return len(r.withdrawn) != before, next
}

// list returns the candidates to pair, given before announced before withdrawn: at most
// maxPerSource for each source, each address once under its best source.
func (r *remotes) list() []Candidate {
	all := slices.Concat(r.given, r.announced)
	for _, w := range r.withdrawn {
		all = append(all, w.Candidate)
	}
	best := make(map[netip.AddrPort]string, len(all))
	for _, c := range all {
		if s, known := best[c.Addr]; !known || sourceRank(c.Source) < sourceRank(s) {
			best[c.Addr] = c.Source
		}
	}
	count := make(map[int]int)
	var out []Candidate
	for _, c := range all {
		source, known := best[c.Addr]
		if !known {
			continue // listed already
		}
		delete(best, c.Addr)
		if kind := sourceRank(source); count[kind] < maxPerSource {
			count[kind]++
			out = append(out, Candidate{c.Addr, source})
		}
	}
	slices.SortStableFunc(out, func(a, b Candidate) int { return sourceRank(a.Source) - sourceRank(b.Source) })
	return out
}

// addrs returns the addresses of all candidates.
func (r *remotes) addrs() []netip.AddrPort {
	var out []netip.AddrPort
	for _, c := range r.list() {
		out = append(out, c.Addr)
	}
	return out
}

// beyond reports whether there are others than known.
func (r *remotes) beyond(known []netip.AddrPort) bool {
	return slices.ContainsFunc(r.addrs(), func(a netip.AddrPort) bool { return !slices.Contains(known, a) })
}

// sanitize drops what cannot be a candidate and limits each source. Foreign candidates must not
// name this host or link.
func sanitize(cs []Candidate, foreign bool) []Candidate {
	count := make(map[int]int)
	out := []Candidate{}
	for _, c := range cs {
		c.Addr = netip.AddrPortFrom(c.Addr.Addr().Unmap(), c.Addr.Port())
		a, kind := c.Addr.Addr(), sourceRank(c.Source)
		local := a.IsLoopback() || a.IsLinkLocalUnicast()
		if !sendable(c.Addr) || foreign && local || count[kind] >= maxPerSource || slices.Contains(out, c) {
			continue
		}
		count[kind]++
		out = append(out, c)
	}
	return out
}

// sendable reports whether an address is unicast and has a port.
func sendable(a netip.AddrPort) bool {
	ip := a.Addr()
	broadcast := ip == netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return ip.IsValid() && a.Port() != 0 && !ip.IsUnspecified() && !ip.IsMulticast() && !broadcast
}

// relayable reports whether a relay on the internet could reach a candidate.
func relayable(c Candidate) bool {
	a := c.Addr.Addr()
	return c.Source == SourceRelay || a.IsGlobalUnicast() && !a.IsPrivate() && c.Source != SourceLAN
}

// setLocal sets what our own side offers.
func (m *Machine) setLocal(l Local) {
	if !slices.Equal(l.Candidates, m.local.Candidates) || l.NAT != m.local.NAT {
		m.talk.stale = true
	}
	m.watchRelays(m.local.Relays, l.Relays)
	m.local = Local{
		Relays: slices.Clone(l.Relays), Hosts: slices.Clone(l.Hosts),
		NAT: l.NAT, Candidates: slices.Clone(l.Candidates),
	}
	m.pairUp()
}

// pairUp creates the pairs for the candidates and drops those without one. Up to maxReflexive
// working pairs are kept as long as they work.
func (m *Machine) pairUp() {
	wanted := make(map[peer.Path]bool)
	for _, c := range m.remote.list() {
		for _, path := range m.waysTo(c) {
			wanted[path] = true
			p := m.find(path)
			if p == nil {
				m.add(path, c.Source)
				continue
			}
			p.source, p.class, p.reflexive = c.Source, classify(path, c.Source), false
		}
	}
	for _, p := range slices.Clone(m.pairs) {
		switch {
		case !m.hasVia(p.path.Via):
			m.drop(p, "the allocation on the relay is gone")
		case wanted[p.path] || p.reflexive:
		case p.works() || p.state == Suspect:
			p.reflexive = true
		default:
			m.drop(p, "the peer withdrew the address")
		}
	}
	// What works although it was withdrawn counts as learned from packets. There would be no end of
	// such pairs if a peer announced ever new addresses at which it answers.
	known := m.learned()
	slices.SortStableFunc(known, func(a, b *pair) int {
		return cmp.Or(m.urgency(a)-m.urgency(b), b.proven().Compare(a.proven()))
	})
	for _, p := range known[min(len(known), maxReflexive):] {
		m.drop(p, "the peer withdrew the address, and comes from others")
	}
}

// learned returns the pairs that no candidate stands for.
func (m *Machine) learned() []*pair {
	var known []*pair
	for _, p := range m.pairs {
		if p.reflexive {
			known = append(known, p)
		}
	}
	return known
}

// waysTo lists the paths to a candidate: from our own socket, and from every allocation.
func (m *Machine) waysTo(c Candidate) []peer.Path {
	ways := []peer.Path{{Remote: c.Addr}}
	for _, r := range m.local.Relays {
		if relayable(c) && r.Addr.Addr().Unmap().Is4() == c.Addr.Addr().Is4() {
			ways = append(ways, peer.Path{Via: r.Via, Remote: c.Addr})
		}
	}
	return ways
}

func (m *Machine) hasVia(via string) bool { return via == "" || hasRelay(m.local.Relays, via) }

func hasRelay(relays []Relay, via string) bool {
	return slices.ContainsFunc(relays, func(r Relay) bool { return r.Via == via })
}

// reflexive returns the pair that a packet from the peer arrived on, creating it if needed; nil if
// there are too many or the packet cannot be answered.
func (m *Machine) reflexive(from peer.Path) *pair {
	from.Remote = netip.AddrPortFrom(from.Remote.Addr().Unmap(), from.Remote.Port())
	if p := m.find(from); p != nil {
		return p
	}
	if !sendable(from.Remote) || !m.hasVia(from.Via) {
		return nil
	}
	if known := m.learned(); len(known) >= maxReflexive && !m.evict(known) {
		return nil
	}
	p := m.add(from, SourcePeer)
	p.reflexive = true
	if m.besideOurs(from.Remote.Addr()) {
		p.class = classRelayed
	}
	return p
}

// besideOurs reports whether an address is a TURN server's, judging by our own allocations there.
// Packets from it are relayed, even if the peer has not announced an allocation yet.
func (m *Machine) besideOurs(a netip.Addr) bool {
	return slices.ContainsFunc(m.local.Relays, func(r Relay) bool { return r.Addr.Addr().Unmap() == a })
}

// evict drops the pair that has been useless the longest, if there is one.
func (m *Machine) evict(known []*pair) bool {
	var worst *pair
	for _, p := range known {
		if p.works() || p.state == Suspect {
			continue
		}
		if worst == nil || p.heard.Before(worst.heard) {
			worst = p
		}
	}
	if worst == nil {
		return false
	}
	m.drop(worst, "the peer comes from other addresses")
	return true
}

// prune forgets what was withdrawn or failed long ago.
func (m *Machine) prune() {
	changed, next := m.remote.expire(m.now)
	if changed {
		m.pairUp()
	}
	if !next.IsZero() {
		m.at(next)
	}
	for _, p := range slices.Clone(m.pairs) {
		if p.reflexive && p.state == Failed && m.at(later(p.proven(), p.heard).Add(linger)) {
			m.drop(p, "it has not answered for long")
		}
	}
}

// admit lists whom our own allocations must let in, if that changed.
func (m *Machine) admit() []netip.Addr {
	out := []netip.Addr{}
	if len(m.local.Relays) > 0 {
		for _, p := range m.pairs {
			a := p.path.Remote.Addr()
			if !relayable(Candidate{p.path.Remote, p.source}) || slices.Contains(out, a) || len(out) == maxPermitted {
				continue
			}
			if slices.Contains(m.known, a) || m.admitsAnother() {
				out = append(out, a)
			}
		}
		m.known = out
	}
	slices.SortFunc(out, netip.Addr.Compare)
	if slices.Equal(out, m.permit) {
		return nil
	}
	m.permit = out
	return slices.Clone(out)
}

// admitsAnother reports whether another address may be admitted now, and counts it. If not, it
// schedules a poll for it.
func (m *Machine) admitsAnother() bool {
	next := later(m.admitted, m.now.Add(-maxPermitted*permitEvery)).Add(permitEvery)
	if !m.at(next) {
		return false
	}
	m.admitted = next
	return true
}
