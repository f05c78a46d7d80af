package simnet

import (
	"net/netip"
	"slices"
	"time"
)

// randomTries is how many random ports are tried before the range is searched in order.
const randomTries = 64

// allocate creates the mapping for a datagram from src to dst.
func (t *translator) allocate(now time.Time, src, dst netip.AddrPort) (*mapping, Reason) {
	addr := t.outsideFor(src.Addr())
	if !addr.IsValid() {
		return nil, DropForeignSource
	}
	if len(t.byInside)+len(t.strays) >= t.MaxMappings {
		return nil, DropTableFull
	}
	remote := t.mapKey(dst)
	if m := t.byInside[insideKey{src, remote}]; m != nil {
		if m.alive(now) { // it is poisoned for this destination, which gets its own
			remote = dst
		} else {
			t.remove(m)
		}
	}
	if m := t.byInside[insideKey{src, remote}]; m != nil {
		t.remove(m)
	}
	want := request{now: now, src: src, remote: remote, dst: dst}
	port, ok := t.choosePort(addr, want)
	if !ok {
		return nil, DropNoPort
	}
	m := &mapping{
		insideKey: insideKey{src, remote},
		outside:   netip.AddrPortFrom(addr, port),
		sessions:  make(map[netip.AddrPort]*session),
	}
	t.insert(m)
	return m, ""
}

// request describes a new mapping.
type request struct {
	now              time.Time
	src, remote, dst netip.AddrPort
}

func (t *translator) choosePort(addr netip.Addr, want request) (uint16, bool) {
	free := func(port uint16) bool { return t.free(netip.AddrPortFrom(addr, port), want) }
	if t.Ports == PreservePorts && free(want.src.Port()) {
		return want.src.Port(), true
	}
	size := int(t.PortMax) - int(t.PortMin) + 1
	start := int(t.nextPort) - int(t.PortMin)
	if t.Ports != SequentialPorts {
		r := t.dice.roll(flowKey(want.src, want.remote))
		for range randomTries {
			if port := t.PortMin + uint16(r.below(uint64(size))); free(port) {
				return port, true
			}
		}
		start = int(r.below(uint64(size)))
	}
	for i := range size {
		port := t.PortMin + uint16((start+i)%size)
		if free(port) {
			t.nextPort = t.PortMin + uint16((start+i+1)%size)
			return port, true
		}
	}
	return 0, false
}

// free reports whether an outside endpoint can serve a new mapping in addition to its current
// ones.
func (t *translator) free(outside netip.AddrPort, want request) bool {
	if t.strays[stray{want.dst, outside}].After(want.now) {
		return false
	}
	for _, m := range t.byOutside[outside] {
		if !m.alive(want.now) {
			continue
		}
		if m.static || overlap(m.remote, want.remote) {
			return false
		}
		shared := t.Overload || t.Ports == PreservePorts && m.inside == want.src
		if !shared {
			return false
		}
	}
	return true
}

// overlap reports whether two mappings could serve one destination.
func overlap(a, b netip.AddrPort) bool {
	if !a.IsValid() || !b.IsValid() { // endpoint-independent
		return true
	}
	return a.Addr() == b.Addr() && (a.Port() == b.Port() || a.Port() == 0 || b.Port() == 0)
}

// outsideFor returns the outside address for an inside one.
func (t *translator) outsideFor(inside netip.Addr) netip.Addr {
	var fit []netip.Addr
	for _, a := range t.outside {
		if a.Is4() == inside.Is4() {
			fit = append(fit, a)
		}
	}
	if len(fit) == 0 {
		return netip.Addr{}
	}
	return fit[endpointKey(netip.AddrPortFrom(inside, 0))%uint64(len(fit))]
}

func (t *translator) insert(m *mapping) {
	t.byInside[m.insideKey] = m
	t.byOutside[m.outside] = append(t.byOutside[m.outside], m)
}

func (t *translator) remove(m *mapping) {
	if t.byInside[m.insideKey] == m {
		delete(t.byInside, m.insideKey)
	}
	rest := slices.DeleteFunc(t.byOutside[m.outside], func(x *mapping) bool { return x == m })
	if len(rest) == 0 {
		delete(t.byOutside, m.outside)
	} else {
		t.byOutside[m.outside] = rest
	}
}

// sweep removes expired entries, at intervals.
func (t *translator) sweep(now time.Time) {
	if now.Sub(t.swept) < sweepInterval {
		return
	}
	t.swept = now
	for _, ms := range t.byOutside {
		for _, m := range slices.Clone(ms) { // remove changes ms
			if !m.alive(now) {
				t.remove(m)
				continue
			}
			for remote, s := range m.sessions {
				if !s.expires.After(now) {
					delete(m.sessions, remote)
				}
			}
		}
	}
	for s, expires := range t.strays {
		if !expires.After(now) {
			delete(t.strays, s)
		}
	}
}
