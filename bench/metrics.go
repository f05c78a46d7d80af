package bench

import (
	"math"

	"github.com/postern-dev/postern/bench/load"
)

// Metric is a quantity by which runs are compared.
type Metric struct {
	// Name is the name in JSON and in table headings.
	Name string
	// Unit is the unit in benchstat's sense: it identifies the value and determines its scaling.
	Unit string
	// Better says which direction is an improvement.
	Better Direction
	// Of returns a run's value. NaN means not measured, and so does 0 unless Zero is set.
	Of   func(load.Result) float64
	Zero bool
	// Scale and Digits convert a value to the number shown in tables, in TableUnit.
	Scale     float64
	Digits    int
	TableUnit string
}

// Direction says whether higher or lower values are better.
type Direction string

// The directions, spelled as in benchstat.
const (
	Higher Direction = "higher"
	Lower  Direction = "lower"
)

// measured reports whether v is a measured value.
func (m Metric) measured(v float64) bool { return v > 0 || m.Zero && v == 0 }

// valueOf returns a function that reads one of the load's own values.
func valueOf(unit string) func(load.Result) float64 {
	return func(r load.Result) float64 {
		if v, ok := r.Values[unit]; ok {
			return v
		}
		return math.NaN()
	}
}

// Metrics of every load. Units are base units; tables scale them.
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
	// IdleCores is Cores for loads that send nothing: the clock of processor time may not have
	// ticked, so 0 is a valid value.
	IdleCores = Metric{
		Name: "busy cores", Unit: "cores", Better: Lower, Of: load.Result.Cores, Zero: true,
		Scale: 100, Digits: 2, TableUnit: "% of a core",
	}
)

// Metrics of particular loads.
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
