// Package bench measures postern against what a user could pick instead, and against
// what bounds every one of them.
//
// # How it measures
//
// A [Scenario] is a load ("one TCP stream"), a [Subject] is what bears it ("postern"),
// and the two make a cell. A run of a cell is a process of its own (see package load),
// so memory and processor time are the subject's alone. Runs are interleaved: every
// round makes one run of every cell, so that a machine that grows slower or busier does
// so for all alike, and every other round makes them in reverse order, since a run may
// also fare by what ran before it. A ratio is therefore taken within a round,
// and what is reported is the median of the rounds' ratios with the least and the
// greatest; absolute figures are of that machine at that minute and no more.
//
// A subject that cannot run stays in the report, with the reason.
//
// # Growing it
//
// A new load is a line in [Scenarios] and a function in package load; a new subject is
// a line in [Subjects] and a function in the program that holds it; a new promise is a
// line in [Requirements]. Tables, JSON and benchstat output follow from these.
package bench

import "github.com/postern-dev/postern/bench/load"

// Metric is a quantity that runs are compared by.
type Metric struct {
	// Name is used in JSON and as table heading.
	Name string
	// Unit is benchstat's: it tells values apart and how to scale them.
	Unit string
	// Better tells benchstat which direction is an improvement.
	Better Direction
	// Of reads the metric from a run. 0 means not measured.
	Of func(load.Result) float64
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

// The metrics. Units are base units; tables scale them.
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
)

// Scenario is a load.
type Scenario struct {
	// Name is what -scenario takes.
	Name string
	// Title says what is done, in a table's heading.
	Title string
	// Benchmark is its name in benchstat's format, without "Benchmark".
	Benchmark string
	// Streams is the number of TCP connections.
	Streams int
	// Subjects are the names of those that bear it, in the order of the runs.
	Subjects []string
	// Reference is the one that tables compare the others with; empty for none.
	Reference string
	// Metrics are what is told of each subject, in the order of the columns.
	Metrics []Metric
}

// Scenarios returns every scenario, in the order of the runs in a round.
func Scenarios() []Scenario {
	tunnels := []string{Postern, Stock, Loopback}
	metrics := []Metric{Throughput, Efficiency, Cores, PeakMemory, PeakAnonymous}
	return []Scenario{
		{
			Name: "tcp-1", Title: "one TCP stream, both ends in one process",
			Benchmark: "TCP/streams=1", Streams: 1,
			Subjects: tunnels, Reference: Stock, Metrics: metrics,
		},
		{
			Name: "tcp-4", Title: "four TCP streams, both ends in one process: the sum",
			Benchmark: "TCP/streams=4", Streams: 4,
			Subjects: tunnels, Reference: Stock, Metrics: metrics,
		},
		{
			Name: "path", Title: "one TCP stream: to a fixed endpoint, over a path that was found, through a TURN server",
			Benchmark: "Path/streams=1", Streams: 1,
			Subjects:  []string{Postern, PosternPaths, PionUDP, PionTCP, CoturnUDP, CoturnTCP},
			Reference: Postern, Metrics: metrics,
		},
		{
			Name: "cipher", Title: "the limit: ChaCha20-Poly1305 seal and open of 1,420 B packets, on one core",
			Benchmark: "Cipher/bytes=1420", Subjects: []string{Cipher}, Metrics: []Metric{Throughput, Efficiency},
		},
	}
}
