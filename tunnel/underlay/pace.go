package underlay

import (
	"hash/maphash"
	"net/netip"
	"time"
)

// pace lets through a burst of events and from then on one per interval. What is not
// used of it is saved up to the burst. It holds no clock.
type pace struct {
	interval time.Duration
	burst    int
	// spent is when the whole burst will be there again.
	spent time.Time
}

// take reports whether an event may pass, and counts it if so.
func (p *pace) take(now time.Time) bool {
	from := p.spent
	if from.Before(now) {
		from = now
	}
	after := from.Add(p.interval)
	if after.Sub(now) > time.Duration(p.burst)*p.interval {
		return false
	}
	p.spent = after
	return true
}

// sourceSlots bounds what is remembered of sources: 1,024 × 40 bytes, for ever.
const sourceSlots = 1024

// sources limits each source by itself. Sources share a slot by chance, which a seed
// keeps anybody from choosing.
type sources struct {
	interval time.Duration
	burst    int
	seed     maphash.Seed
	slots    [sourceSlots]time.Time // what pace.spent is
}

// take is pace.take for a source: an IPv4 address, or the /64 of an IPv6 one, which is
// the least that one network has.
func (s *sources) take(source netip.Addr, now time.Time) bool {
	slot := &s.slots[maphash.Comparable(s.seed, network64(source))%sourceSlots]
	p := pace{s.interval, s.burst, *slot}
	ok := p.take(now)
	*slot = p.spent
	return ok
}

func network64(a netip.Addr) netip.Addr {
	if a.Is6() {
		if n, err := a.WithZone("").Prefix(64); err == nil {
			return n.Addr()
		}
	}
	return a
}
