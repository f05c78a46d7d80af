package load

import (
	"fmt"
	"maps"
	"time"
)

// Bearers are what bears a subject beside this process. The zero value stands for a
// subject that this process bears alone.
type Bearers struct {
	// Processes are counted in this one's place: their processor time and memory are
	// those of the run, each summed, and the load's own are not.
	Processes []int
	// Counters are what the subject counts by itself, by units of benchstat's format. What
	// they grow by in the window goes to [Result.Values].
	Counters func() (map[string]float64, error)
	// Values go there as they are: what bringing the ends up took.
	Values map[string]float64
}

// processorTime is what the bearers have used so far.
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

// memory of the bearers. The peak is the sum of theirs, hence no less than that of the sum.
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

// counters reads them; without any there are none.
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

// growth is what counters gained, by unit.
func growth(before, after map[string]float64) map[string]float64 {
	out := maps.Clone(after)
	for unit := range out {
		out[unit] -= before[unit]
	}
	return out
}

// with adds values to the result's.
func (r *Result) with(values map[string]float64) {
	if len(values) == 0 {
		return
	}
	if r.Values == nil {
		r.Values = make(map[string]float64)
	}
	maps.Copy(r.Values, values)
}
