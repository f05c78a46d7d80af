package discovery

import (
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// maxBoots bounds the stored boot numbers of a peer.
	maxBoots = 8
	// leaving is how long after a peer's restart a request from its earlier life may still arrive
	// without meaning anything: it was in flight, or the old process was shutting down.
	leaving = 10 * time.Second
	// An earlier boot number counts as having come back if it is seen at two moments this far
	// apart. Once may be a delayed request, or a few that arrive together. A gateway that lost its
	// path to another that runs with its key sends requests for about ten seconds, from the fifth
	// on, and then not for another twenty: more than 3 s would mostly not fit between leaving and
	// that pause.
	minReturn = 3 * time.Second
	maxReturn = 10 * time.Minute
	// endedAfter is how long a peer's later start must be silent for an earlier one to count again.
	// With the longest keepalive, 1 min, a side probes an idle path every 2 min.
	endedAfter = 150 * time.Second
)

// Sighting is what was seen of a peer, with or without a path to it.
type Sighting struct {
	// RequestAt is when the peer's last authenticated probe request arrived, by our own clock; zero
	// = never. RequestFrom is its source, on the path that it came on.
	RequestAt   time.Time
	RequestFrom netip.AddrPort
	// Boots are the last boot numbers that the peer was seen with, in probes and in-band, newest
	// last and no two alike in a row; at most 8. BootsAt are when each was first seen in its place.
	// Boot numbers grow with every start, so one that comes back means that two processes run with
	// the peer's key. It is listed only if it has come back more than once, 3 s apart.
	Boots   []uint64
	BootsAt []time.Time
	// RemovedAt is when the peer last said that it has removed us, unless a later answer refuted
	// it; zero = it has not. RemovedFrom is where it said so from.
	RemovedAt   time.Time
	RemovedFrom netip.AddrPort
	// Moved are the endpoint names whose addresses changed, with their last change, in
	// configuration order. Named are all that resolve, with Now alone.
	Moved, Named []NameMove
}

// NameMove is a change of what an endpoint's name resolves to.
type NameMove struct {
	Name     string // as configured, with the port
	Was, Now []netip.Addr
	At       time.Time
}

// Sight returns what was seen of a peer; zero if it is not ours.
func (f *Pathfinder) Sight(k peer.PublicKey) Sighting {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.peers[k]
	if p == nil {
		return Sighting{}
	}
	s := Sighting{
		RequestAt: p.sight.requestAt, RequestFrom: p.sight.requestFrom,
		RemovedAt: p.sight.removedAt, RemovedFrom: p.sight.removedFrom,
		Boots: slices.Clone(p.sight.boots), BootsAt: slices.Clone(p.sight.bootsAt),
	}
	for _, n := range p.names {
		if n.host != "" && len(n.addrs) > 0 {
			s.Named = append(s.Named, NameMove{Name: n.text, Now: slices.Clone(n.addrs)})
		}
		if n.moved != nil {
			s.Moved = append(s.Moved, NameMove{Name: n.text, Was: slices.Clone(n.moved.was), Now: slices.Clone(n.addrs), At: n.moved.at})
		}
	}
	return s
}

// Boot returns the boot number of the peer's start whose requests are answered; 0 if none is known.
func (f *Pathfinder) Boot(k peer.PublicKey) uint64 { return f.prober.BootID(k) }

// sight is what is stored for a [Sighting].
type sight struct {
	requestAt   time.Time
	requestFrom netip.AddrPort
	removedAt   time.Time
	removedFrom netip.AddrPort
	boots       []uint64
	bootsAt     []time.Time
	back        map[uint64]time.Time // when each earlier boot number was seen after a later one
}

// requested notes an authenticated request.
func (s *sight) requested(now time.Time, from netip.AddrPort, boot uint64) {
	s.requestAt, s.requestFrom = now, unmapped(from)
	s.booted(now, boot)
}

// booted notes a boot number.
func (s *sight) booted(now time.Time, boot uint64) {
	last := len(s.boots) - 1
	switch {
	case boot == 0 || last >= 0 && s.boots[last] == boot:
		return
	case last >= 0 && boot < s.boots[last] && !s.cameBack(now, boot):
		return
	}
	s.boots, s.bootsAt = append(s.boots, boot), append(s.bootsAt, now)
	if extra := len(s.boots) - maxBoots; extra > 0 {
		s.boots, s.bootsAt = slices.Delete(s.boots, 0, extra), slices.Delete(s.bootsAt, 0, extra)
	}
}

// cameBack notes a boot number below the last one, and reports whether it is more than a straggler.
func (s *sight) cameBack(now time.Time, boot uint64) bool {
	if now.Sub(s.bootsAt[len(s.bootsAt)-1]) < leaving {
		return false
	}
	first, ok := s.back[boot]
	switch since := now.Sub(first); {
	case !ok || since > maxReturn:
	case since < minReturn:
		return false
	default:
		s.back[boot] = now.Add(-minReturn) // from now on it counts whenever it comes
		return true
	}
	if s.back == nil || len(s.back) >= maxBoots {
		s.back = make(map[uint64]time.Time)
	}
	s.back[boot] = now
	return false
}

// see updates what is stored about a peer.
func (f *Pathfinder) see(k peer.PublicKey, note func(now time.Time, s *sight)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.peers[k]; p != nil {
		note(time.Now(), &p.sight)
	}
}
