package sender

import (
	"math"
	"sort"
	"time"
)

// delays remembers the round trips of recent packets by departure. What a full queue drops departed
// just after a packet that this queue delayed. Packets that the path itself loses follow delayed ones
// no more often than packets that arrive do, even if round trips differ for other reasons.
type delays struct {
	recent fifo[trip]    // by departure
	excess time.Duration // of the rounds' mean round trips above the base, averaged
}

// trip is a packet's round trip.
type trip struct{ departed, took time.Duration }

const (
	// delaysKept is for how many smoothed round trips a round trip is kept. Losses are found sooner.
	delaysKept = 3
	// delaySteps is how many are kept of each smoothed round trip at most.
	delaySteps = 128
)

// add records a round trip, unless others that departed at the same time or later are known.
func (d *delays) add(r trip, smoothed time.Duration) {
	all := d.recent.all()
	if n := len(all); n > 0 && r.departed <= all[n-1].departed+smoothed/delaySteps {
		return
	}
	d.recent.pop(sort.Search(len(all), func(i int) bool { return all[i].departed >= r.departed-delaysKept*smoothed }))
	d.recent.push(r)
}

// before returns the round trip of the packet that departed last at or before a time, but not long
// before it; 0 is unknown.
func (d *delays) before(at, smoothed time.Duration) time.Duration {
	all := d.recent.all()
	n := len(all)
	if n > 0 && all[n-1].departed > at {
		n = sort.Search(n, func(i int) bool { return all[i].departed > at })
	}
	if n == 0 || all[n-1].departed < at-smoothed {
		return 0
	}
	return all[n-1].took
}

// round adds the mean excess of a round.
func (d *delays) round(excess time.Duration) { d.excess += (max(excess, 0) - d.excess) / 8 }

// wait says how long the packet before another one took.
type wait uint8

const (
	unknownWait wait = iota
	prompt
	delayed // longer than the base by more than half of what packets take on average
)

// wait returns how long the packet took that departed just before a time.
func (m *pathModel) wait(departed time.Duration) wait {
	switch took := m.delays.before(departed, m.trips.smoothed); {
	case took == 0:
		return unknownWait
	case took > m.base+max(leastQueue, m.delays.excess/2):
		return delayed
	default:
		return prompt
	}
}

// byWait counts packets separately by how long the packets took that departed just before them.
type byWait [delayed + 1]tally

func (b *byWait) add(o byWait) {
	for w := range b {
		b[w].add(o[w])
	}
}

// count adds packets or bytes after a wait.
func (b *byWait) count(w wait, lost, delivered int) {
	b[w].add(tally{lost: float64(lost), all: float64(lost + delivered)})
}

// scaled returns b with all counts multiplied.
func (b byWait) scaled(f float64) byWait {
	for w := range b {
		b[w].scale(f)
	}
	return b
}

// remember adds a round to a long-term count.
func (b *byWait) remember(round byWait) {
	for w := range b {
		b[w].remember(round[w])
	}
}

// queueDrops reports whether packets are lost significantly more often after delayed ones than after
// prompt ones. Those after prompt ones have their share of losses that have nothing to do with
// delays. index is the index of dispersion of losses.
func (b *byWait) queueDrops(index float64) bool {
	few, many := max(b[prompt].lost, 0), max(b[delayed].lost, 0)
	all := b[prompt].all + b[delayed].all
	if few+many == 0 || b[prompt].all <= 0 || b[delayed].all <= 0 {
		return false
	}
	lost, share := few+many, b[prompt].all/all
	return few+1 < lost*share-significant*math.Sqrt(index*lost*share*(1-share))
}
