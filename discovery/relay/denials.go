package relay

import (
	"net/netip"
	"time"
)

const (
	// deniedBurst and deniedEvery bound the warnings about refused addresses: whose they
	// are a peer decides, and it may announce new ones all the time.
	deniedBurst = 8
	deniedEvery = time.Minute
)

// denials says which refused addresses are worth a line in the log. Whoever has it locks
// it. It counts by periods, since what was held back is told once in each.
type denials struct {
	warned int       // since; more than deniedBurst once it was said how many were held back
	since  time.Time // the start of the period
}

// pass returns the addresses to warn of, and how many others were held back for the first
// time in this period. Those of the other IP family count for nothing: they are no warnings.
func (d *denials) pass(now time.Time, news []netip.Addr, why map[netip.Addr]string) (let []netip.Addr, held int) {
	if now.Sub(d.since) >= deniedEvery {
		d.warned, d.since = 0, now
	}
	told := d.warned > deniedBurst
	for _, a := range news {
		if why[a] == otherFamily {
			let = append(let, a)
			continue
		}
		if d.warned < deniedBurst {
			d.warned++
			let = append(let, a)
			continue
		}
		held++
	}
	if held > 0 {
		d.warned = deniedBurst + 1
	}
	if told {
		held = 0
	}
	return let, held
}
