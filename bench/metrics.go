package bench

import (
	"math"

	"github.com/postern-dev/postern/bench/load"
)

// Metric is a quantity that runs are compared by.
type Metric struct {
	// Name is used in JSON and as table heading.
	Name string
	// Unit is benchstat's: it tells values apart and how to scale them.
	Unit string
	// Better tells benchstat which direction is an improvement.
	Better Direction
	// Of reads the metric from a run. NaN means not measured, and so does 0, unless Zero.
	Of   func(load.Result) float64
	Zero bool
	// Scale and Digits turn a value into the number that tables show, in TableUnit.
	Scale     float64
	Digits    int
	TableUnit string
}

// Direction is the way in which a metric improves.
type Direction string

// The two directions, as benchstat spells them.
const (
	Higher Direction = "higher"
	Lower  Direction = "lower"
)

// measured reports whether a value of the metric was measured.
func (m Metric) measured(v float64) bool { return v > 0 || m.Zero && v == 0 }

// valueOf reads one of the load's own quantities.
func valueOf(unit string) func(load.Result) float64 {
	return func(r load.Result) float64 {
		if v, ok := r.Values[unit]; ok {
			return v
		}
		return math.NaN()
	}
}

// The metrics of any load. Units are base units; tables scale them.
var (
	Throughput = Metric{
		Name: "throughput", Unit: "bit/s", Better: Higher, Of: load.Result.BitsPerSecond,
		Scale: 1e-9, Digits: 2, TableUnit: "Gbit/s",
	}
	Efficiency = Metric{
		Name: "throughput per core", Unit: "bit/cpu-s", Better: Higher, Of: load.Result.BitsPerCPUSecond,
		Scale: 1e-9, Digits: 2, TableUnit: "Gbit/s/core",
	}
	Cores = Metric{
		Name: "busy cores", Unit: "cores", Better: Lower, Of: load.Result.Cores,
		Scale: 1, Digits: 2, TableUnit: "cores",
	}
	PeakMemory = Metric{
		Name: "peak memory", Unit: "peak-RSS-bytes", Better: Lower,
		Of:    func(r load.Result) float64 { return float64(r.PeakRSS) },
		Scale: 1e-6, Digits: 0, TableUnit: "MB",
	}
	PeakAnonymous = Metric{
		Name: "peak anonymous memory", Unit: "peak-anon-bytes", Better: Lower,
		Of:    func(r load.Result) float64 { return float64(r.PeakAnon) },
		Scale: 1e-6, Digits: 0, TableUnit: "MB anon",
	}
	// IdleCores is Cores where nothing is sent: the clock of processor time may not have
	// ticked, so 0 is a value.
	IdleCores = Metric{
		Name: "busy cores", Unit: "cores", Better: Lower, Of: load.Result.Cores, Zero: true,
		Scale: 100, Digits: 2, TableUnit: "% of a core",
	}
)

// The metrics of some loads.
var (
	Median = Metric{
		Name: "median delay", Unit: load.UnitMedian, Better: Lower, Of: valueOf(load.UnitMedian),
		Scale: 1e6, Digits: 0, TableUnit: "p50 µs",
	}
	P99 = Metric{
		Name: "99th percentile of the delay", Unit: load.UnitP99, Better: Lower, Of: valueOf(load.UnitP99),
		Scale: 1e6, Digits: 0, TableUnit: "p99 µs",
	}
	P999 = Metric{
		Name: "99.9th percentile of the delay", Unit: load.UnitP999, Better: Lower, Of: valueOf(load.UnitP999),
		Scale: 1e6, Digits: 0, TableUnit: "p99.9 µs",
	}
	Requests = Metric{
		Name: "requests answered", Unit: load.UnitRequests, Better: Higher, Of: valueOf(load.UnitRequests),
		Scale: 1, Digits: 0, TableUnit: "requests/s",
	}
	Bulk = Metric{
		Name: "throughput beside them", Unit: load.UnitBulk, Better: Higher, Of: valueOf(load.UnitBulk),
		Scale: 1e-9, Digits: 2, TableUnit: "bulk Gbit/s",
	}
	Packets = Metric{
		Name: "packets that arrive", Unit: load.UnitPackets, Better: Higher, Of: valueOf(load.UnitPackets),
		Scale: 1e-3, Digits: 1, TableUnit: "1,000 packets/s",
	}
	Lost = Metric{
		Name: "packets lost", Unit: load.UnitLost, Better: Lower, Of: valueOf(load.UnitLost), Zero: true,
		Scale: 100, Digits: 2, TableUnit: "% lost",
	}
	Connections = Metric{
		Name: "new connections", Unit: load.UnitConnections, Better: Higher, Of: valueOf(load.UnitConnections),
		Scale: 1, Digits: 0, TableUnit: "connections/s",
	}
	Events = Metric{
		Name: "events to every watch", Unit: load.UnitEvents, Better: Higher, Of: valueOf(load.UnitEvents),
		Scale: 1, Digits: 0, TableUnit: "events/s",
	}
	FirstByte = Metric{
		Name: "time to the first byte", Unit: load.UnitFirstByte, Better: Lower, Of: valueOf(load.UnitFirstByte),
		Scale: 1e3, Digits: 1, TableUnit: "ms",
	}
)
