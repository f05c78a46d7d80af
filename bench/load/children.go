package load

import (
	"fmt"
	"maps"
	"time"
)

// Bearers describes the processes that carry a subject. The zero value means this process.
type Bearers struct {
	// Processes are counted instead of this process: their processor time and memory are summed,
	// and the load's are not included.
	Processes []int
	// Counters returns the subject's own counters, by unit in benchstat's format. Their increase
	// in the window is added to [Result.Values].
	Counters func() (map[string]float64, error)
	// Values are added to [Result.Values] unchanged, such as the time to start the ends.
	Values map[string]float64
}

// processorTime returns the processor time used so far.
func (b *Bearers) processorTime() (user, system time.Duration) {
	if b == nil || len(b.Processes) == 0 {
		return processorTime()
	}
	for _, pid := range b.Processes {
		u, s := processorTimeOf(pid)
		user, system = user+u, system+s
	}
	return user, system
}

// memory returns the memory in use. The peak is the sum of the processes' peaks, which may exceed
// the peak of the sum.
func (b *Bearers) memory() usage {
	if b == nil || len(b.Processes) == 0 {
		return memory()
	}
	var sum usage
	for _, pid := range b.Processes {
		m := memoryOf(pid)
		sum.peak, sum.anon = sum.peak+m.peak, sum.anon+m.anon
	}
	return sum
}

// counters reads the counters; nil if there are none.
func (b *Bearers) counters() (map[string]float64, error) {
	if b == nil || b.Counters == nil {
		return nil, nil
	}
	c, err := b.Counters()
	if err != nil {
		return nil, fmt.Errorf("read the subject's counters: %w", err)
	}
	return c, nil
}

// growth returns the increase of each counter.
func growth(before, after map[string]float64) map[string]float64 {
	out := maps.Clone(after)
	for unit := range out {
		out[unit] -= before[unit]
	}
	return out
}

// with adds values to those of the result.
func (r *Result) with(values map[string]float64) {
	if len(values) == 0 {
		return
	}
	if r.Values == nil {
		r.Values = make(map[string]float64)
	}
	maps.Copy(r.Values, values)
}
