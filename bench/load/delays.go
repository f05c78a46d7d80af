package load

import (
	"math"
	"slices"
	"sync"
	"time"
)

// delays are all that a run measured, each at the time from which it counts. Keeping
// every one costs 16 bytes and makes quantiles exact.
type delays struct {
	began time.Time
	mu    sync.Mutex
	all   []delay
}

type delay struct{ at, took time.Duration }

func newDelays() *delays { return &delays{began: time.Now()} }

// add reports something that began at a time and took as long.
func (d *delays) add(at time.Time, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, delay{at.Sub(d.began), took})
}

// of returns the delays of what began in a window, from the shortest to the longest.
func (d *delays) of(w window) []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, to := w.from.Sub(d.began), w.to.Sub(d.began)
	var out []time.Duration
	for _, one := range d.all {
		if one.at >= from && one.at < to {
			out = append(out, one.took)
		}
	}
	slices.Sort(out)
	return out
}

// The units of delays' quantiles, in seconds.
const (
	UnitMedian = "p50-sec"
	UnitP99    = "p99-sec"
	UnitP999   = "p99.9-sec"
)

// quantiles puts into values what the number of sorted delays can tell: for the 99.9th
// percentile it takes a thousand.
func quantiles(values map[string]float64, sorted []time.Duration) {
	for unit, q := range map[string]float64{UnitMedian: 0.5, UnitP99: 0.99, UnitP999: 0.999} {
		if enough(len(sorted), q) {
			values[unit] = quantile(sorted, q).Seconds()
		}
	}
}

// enough reports whether n samples can tell a quantile: whether at least one is above it.
func enough(n int, q float64) bool {
	return n > 0 && math.Round(float64(n)*(1-q)*1e6) >= 1e6 // since 1-0.99 is a little more than 0.01
}

// quantile is the nearest-rank one: the least delay that a share q of them do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
