package underlay

import (
	"hash/maphash"
	"net/netip"
	"time"
)

// pace lets through a burst of events and then one per interval; unused capacity is saved up to the
// burst. It has no clock. A limiter of x/time/rate takes twice the memory, of which there are
// thousands, and a lock for each call on the path of a flood.
type pace struct {
	interval time.Duration
	burst    int
	// spent is when the full burst will be available again.
	spent time.Time
}

// ready reports whether an event may pass.
func (p *pace) ready(now time.Time) bool {
	return p.spent.Sub(now) <= time.Duration(p.burst-1)*p.interval
}

// take reports whether an event may pass, and counts it if so.
func (p *pace) take(now time.Time) bool {
	if !p.ready(now) {
		return false
	}
	if p.spent.Before(now) {
		p.spent = now
	}
	p.spent = p.spent.Add(p.interval)
	return true
}

// sourceSlots bounds the memory for sources to 1,024 × 40 bytes, for ever.
const sourceSlots = 1024

// sources limits each source separately. Sources share slots by chance; a seed keeps anyone from
// choosing.
type sources struct {
	interval time.Duration
	burst    int
	seed     maphash.Seed
	slots    [sourceSlots]pace
}

// of returns the pace of a source.
func (s *sources) of(source netip.Addr) *pace {
	p := &s.slots[maphash.Comparable(s.seed, source)%sourceSlots]
	p.interval, p.burst = s.interval, s.burst
	return p
}

// sourceOf is what counts as one source: an IPv4 address or an IPv6 /64, the smallest network.
func sourceOf(a netip.Addr) netip.Addr { return prefixOf(a, 32, 64) }

// networkOf is what counts as one network: an IPv4 /24 or an IPv6 /48, the largest that one site
// has (RFC 6177).
func networkOf(a netip.Addr) netip.Addr { return prefixOf(a, 24, 48) }

// prefixOf returns the first address of the prefix that the address is in.
func prefixOf(a netip.Addr, bits4, bits6 int) netip.Addr {
	bits := bits6
	if a.Is4() {
		bits = bits4
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return a
	}
	return p.Addr()
}
