package load

import (
	"math"
	"slices"
	"sync"
	"time"
)

// delays are all measured delays of a run with their start times. Storing each takes 16 bytes and
// makes quantiles exact.
type delays struct {
	began time.Time
	mu    sync.Mutex
	all   []delay
}

type delay struct{ at, took time.Duration }

func newDelays() *delays { return &delays{began: time.Now()} }

// add records something that began at a time and its duration.
func (d *delays) add(at time.Time, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, delay{at.Sub(d.began), took})
}

// of returns the delays that began in a window, sorted.
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

// Units of the delays' quantiles, in seconds.
const (
	UnitMedian = "p50-sec"
	UnitP99    = "p99-sec"
	UnitP999   = "p99.9-sec"
)

// quantiles adds those quantiles to values for which there are enough delays: the 99.9th
// percentile needs a thousand.
func quantiles(values map[string]float64, sorted []time.Duration) {
	for unit, q := range map[string]float64{UnitMedian: 0.5, UnitP99: 0.99, UnitP999: 0.999} {
		if enough(len(sorted), q) {
			values[unit] = quantile(sorted, q).Seconds()
		}
	}
}

// enough reports whether n samples are enough for a quantile: at least one must be above it.
func enough(n int, q float64) bool {
	return n > 0 && math.Round(float64(n)*(1-q)*1e6) >= 1e6 // since 1-0.99 is a little more than 0.01
}

// quantile is the nearest-rank quantile: the smallest delay that at least a share q does not
// exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
