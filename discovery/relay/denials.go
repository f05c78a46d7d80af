package relay

import (
	"net/netip"
	"time"
)

const (
	// deniedBurst and deniedEvery limit the warnings about denied addresses: peers choose them, and
	// may announce new ones all the time.
	deniedBurst = 8
	deniedEvery = time.Minute
)

// denials decides which denied addresses are logged. Its owner locks it. It counts by periods,
// since the number held back is logged once in each.
type denials struct {
	warned int       // since; more than deniedBurst once the number held back was logged
	since  time.Time // the start of the period
}

// pass returns the addresses to log, and how many others were held back for the first time in this
// period. Addresses of the other IP family are not counted: they are no warnings.
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
