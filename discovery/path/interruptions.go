package path

import (
	"math"
	"slices"
	"time"
)

const (
	// maxInterruptions bounds those that are remembered.
	maxInterruptions = 16
	// leastInterruptions are needed for a period, and so many that the probability that they fit it by
	// chance is at most mostChance: on a path that fails often, many periods are tried.
	leastInterruptions = 5
	mostChance         = 1.0 / 5000
	// longestOutage is the longest that a link, a NAT or a router causes on a schedule. Longer ones are of
	// machines that are suspended or switched off, often at the same time of the day.
	longestOutage = 10 * time.Minute
	// leastPeriod is the shortest period that is told from single lost packets.
	leastPeriod = 8 * time.Second
	// An interval fits if it differs from a multiple of the period by no more than fitShare of it, or
	// fitLeast: an outage ends unseen between two probes. But never by more than fitMost of it, which
	// nearly everything would, or by fitTime, as what somebody does every day would. Up to maxMultiple-1 outages in a row may have been missed: while the
	// tunnel is idle, there is a probe every 20 s.
	fitShare, fitMost = 0.02, 0.1
	fitLeast, fitTime = 2 * repeatMax, 2 * time.Minute
	maxMultiple       = 8
	// rebootWithin is how long after an interruption it shows that the peer was restarted.
	rebootWithin = 30 * time.Second
)

// Interruptions are the times when the path in use did not work, and no other took its place, as far
// as they come at regular intervals. The zero value is none.
type Interruptions struct {
	Times  int
	Period time.Duration
	// Apart is the longest time between two. While the tunnel is idle, some are not seen.
	Apart       time.Duration
	Longest     time.Duration // outage
	First, Last time.Time     // when the first began, and the last ended
}

// outage is one of them.
type outage struct{ began, ended time.Time }

// interruptions remembers the last outages of the path in use.
type interruptions struct {
	broken  time.Time // since when it has been broken; zero while it works
	last    []outage
	regular Interruptions // those of last
}

// watch notes whether the path in use works now, which only probes show in time.
func (m *Machine) watch() {
	x, s := &m.interruptions, m.sel
	works := s != nil && s.state == Selected
	switch {
	case !m.probing:
	case !works && x.broken.IsZero() && (s != nil || m.why != ""):
		if x.broken = m.now; s != nil && s.asked > 0 {
			x.broken = s.askedAt
		}
	case works && !x.broken.IsZero():
		if m.rebooted.Before(x.broken) {
			x.ended(outage{x.broken, m.now})
		}
		x.broken = time.Time{}
	}
}

// ended adds an outage.
func (x *interruptions) ended(o outage) {
	if o.ended.Sub(o.began) > longestOutage {
		return
	}
	if len(x.last) == maxInterruptions {
		x.last = slices.Delete(x.last, 0, 1)
	}
	x.last = append(x.last, o)
	x.regular = x.find()
}

// restarted takes back the last outage if it was a restart of the peer.
func (x *interruptions) restarted(now time.Time) {
	if n := len(x.last); n > 0 && now.Sub(x.last[n-1].ended) < rebootWithin {
		x.last = x.last[:n-1]
		x.regular = x.find()
	}
}

// find returns the outages that come at regular intervals: as many of the last as do. What ends
// them, or what begins them, is regular. Which of the two is seen better depends on how long they are
// and whether the tunnel is idle.
func (x *interruptions) find() Interruptions {
	for i := 0; len(x.last)-i >= leastInterruptions; i++ {
		list := x.last[i:]
		for _, at := range []func(outage) time.Time{func(o outage) time.Time { return o.ended }, func(o outage) time.Time { return o.began }} {
			var apart []time.Duration
			for j, o := range list[1:] {
				apart = append(apart, at(o).Sub(at(list[j])))
			}
			period := periodOf(apart)
			if period == 0 {
				continue
			}
			out := Interruptions{Times: len(list), Period: period, Apart: slices.Max(apart), First: list[0].began, Last: list[len(list)-1].ended}
			for _, o := range list {
				out.Longest = max(out.Longest, o.ended.Sub(o.began))
			}
			return out
		}
	}
	return Interruptions{}
}

// periodOf returns the period of which the intervals are multiples, or 0. It is the shortest of them,
// or half of that.
func periodOf(apart []time.Duration) time.Duration {
	shortest := slices.Min(apart)
	for _, period := range []time.Duration{shortest, shortest / 2} {
		if period < leastPeriod/2 { // far too short, or not even positive
			break
		}
		var sum time.Duration
		n := 0
		for _, d := range apart {
			sum, n = sum+d, n+int((d+period/2)/period)
		}
		if period = sum / time.Duration(n); period >= leastPeriod && fits(apart, period) {
			return period
		}
	}
	return 0
}

func fits(apart []time.Duration, period time.Duration) bool {
	slack := min(max(fitLeast, time.Duration(fitShare*float64(period))), fitTime, time.Duration(fitMost*float64(period)))
	chance := math.Pow(2*float64(slack)/float64(period), float64(len(apart)-1)) // the first gives the period
	return chance <= mostChance && !slices.ContainsFunc(apart, func(d time.Duration) bool {
		n := (d + period/2) / period
		return n > maxMultiple || (d-n*period).Abs() > slack
	})
}
