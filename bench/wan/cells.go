package wan

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/load"
)

const (
	// gridRate is the rate of the grid's paths, in bits per second.
	gridRate = 1e9
	// gridWarmup is long enough for slow start: twelve round trips of 200 ms double a window of
	// 10 packets to 40,000, twice what 1 Gbit/s needs.
	gridWarmup = 4 * time.Second
	gridWindow = 10 * time.Second
	// lossyRuns and lossyWindow are for paths with random loss. With 1 % of loss, runs of 10 s of
	// one subject differ by half. At 200 ms, nine of these measured a ratio of 0.8, and fifteen
	// of 25 s measured 1.2.
	lossyRuns   = 9
	lossyWindow = 25 * time.Second
	// cleanRuns is for other paths.
	cleanRuns = 3

	// The link of the keystrokes is a home's uplink. Its queue is the minimum of a [Path], 105 ms
	// at this rate.
	keysRate = 20e6
	keysRTT  = 40 * time.Millisecond
	// 8 keys a second is a fast typist. The window has 240 of them, so the 99th percentile is the
	// third slowest.
	keysPerSecond = 8
	keysWindow    = 30 * time.Second
	keySize       = 64
)

// The grid's axes.
var (
	gridRTTs   = []time.Duration{1 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}
	gridLosses = []float64{0, 0.001, 0.01, 0.03}
)

// promisedRTT is the shortest round-trip time for which there are promises about losses.
const promisedRTT = 20 * time.Millisecond

// Cells of the keystrokes.
const (
	cellKeysIdle = "keys/idle"
	cellKeysBusy = "keys/busy"
)

// Scenario is a load over a path.
type Scenario struct {
	bench.Scenario
	// Cell is the name in tables and for patterns: words separated by slashes.
	Cell string
	// Family is the heading of a table. Scenarios with the same one share the table.
	Family string
	Path   Path
	// Runs is the number of rounds needed.
	Runs   int
	warmup time.Duration
	window time.Duration
	// asked are subjects that only run if selected by name.
	asked []string
	// duel says who shares the path; nil if that is not measured.
	duel *duel
}

// Base is the default subject that the others are compared with.
const Base = bench.WireGuardBBR

// throughput is bench's, in the unit of long paths.
func throughput() bench.Metric {
	m := bench.Throughput
	m.Scale, m.Digits, m.TableUnit = 1e-6, 1, "Mbit/s"
	return m
}

// keyP50 and keyP99 are the times from a keystroke to its echo.
var keyP50, keyP99 = milliseconds(bench.Median, "ms p50"), milliseconds(bench.P99, "ms p99")

// milliseconds returns m in milliseconds.
func milliseconds(m bench.Metric, unit string) bench.Metric {
	m.Scale, m.Digits, m.TableUnit = 1e3, 1, unit
	return m
}

// Scenarios returns all scenarios, in the order of the runs of a round: the grid, paths with more
// impairments than loss, profiles of paths, keystrokes, requests beside workloads, and flows that
// share a bottleneck.
func Scenarios() []Scenario {
	return slices.Concat(gridScenarios(), impairedScenarios(), profileScenarios(), keyScenarios(), controlScenarios(), duelScenarios())
}

// stream is one TCP stream over a path.
func stream(cell, family string, p Path, subjects ...string) Scenario {
	s := named(cell, family, subjects...)
	s.Spec, s.Metrics = load.Spec{Streams: 1}, []bench.Metric{throughput(), bench.Cores, bench.PeakMemory}
	s.Path, s.Runs, s.window = p, cleanRuns, gridWindow
	if p.Loss >= 0.01 {
		s.Runs, s.window = lossyRuns, lossyWindow
	}
	return s
}

func named(cell, family string, subjects ...string) Scenario {
	return Scenario{
		Scenario: bench.Scenario{
			Default: true, Name: scenarioName(cell), Title: family + ": " + cell, Benchmark: "WAN/" + cell,
			Subjects: slices.Concat([]string{bench.Postern, bench.PosternBefore}, subjects), Reference: Base,
		},
		Cell: cell, Family: family, warmup: gridWarmup,
	}
}

func scenarioName(cell string) string { return "wan-" + strings.ReplaceAll(cell, "/", "-") }

func gridCell(rtt time.Duration, loss float64) string {
	return fmt.Sprintf("%dms/%g%%", rtt.Milliseconds(), loss*100)
}

func impairedCell(rtt time.Duration, name string) string {
	return fmt.Sprintf("%dms/%s", rtt.Milliseconds(), name)
}

func gridScenarios() (out []Scenario) {
	for _, rtt := range gridRTTs {
		for _, loss := range gridLosses {
			s := stream(gridCell(rtt, loss), "One TCP stream over 1 Gbit/s, round-trip time/loss",
				Path{RTT: rtt, Rate: gridRate, Loss: loss}, bench.Tsnet, bench.WireGuardBBR, bench.WireGuardCUBIC)
			s.Benchmark = fmt.Sprintf("WAN/rtt=%dms/loss=%g%%", rtt.Milliseconds(), loss*100)
			out = append(out, s)
		}
	}
	return out
}

// impairments are what a path may do besides losing single packets. Each is combined with
// round-trip times of the grid.
var impairments = []struct {
	name string
	path Path
}{
	{"jitter", Path{Jitter: 30 * time.Millisecond}},
	{"jitter-lossy", Path{Jitter: 30 * time.Millisecond, Loss: 0.01}},
	// 5 ms are 400 full packets at 1 Gbit/s, and a quarter of the shortest round trip: the
	// initial tolerance of RACK (RFC 8985, section 6.2).
	{"reorder", Path{Reorder: 0.01, ReorderBy: 5 * time.Millisecond}},
	{"reorder-lossy", Path{Reorder: 0.01, ReorderBy: 5 * time.Millisecond, Loss: 0.01}},
	{"bursts", Path{Loss: 0.01, Burst: 8}},
	// A bucket of 100 ms. Policers on the internet and their effect on TCP: Flach et al., "An
	// Internet-Wide Analysis of Traffic Policing", SIGCOMM 2016.
	{policed, Path{Police: 50e6, PoliceBurst: 50e6 / 8 / 10}},
}

// policed is the impairment without promises.
const policed = "policer"

func impairedScenarios() (out []Scenario) {
	for _, rtt := range gridRTTs {
		if rtt < promisedRTT {
			continue
		}
		for _, one := range impairments {
			p := one.path
			p.RTT, p.Rate = rtt, gridRate
			out = append(out, stream(impairedCell(rtt, one.name),
				"One TCP stream over 1 Gbit/s that does more than lose, round-trip time/what", p, bench.WireGuardBBR))
		}
	}
	return out
}

func keyScenarios() (out []Scenario) {
	for _, cell := range []string{cellKeysIdle, cellKeysBusy} {
		s := named(cell, "Keystrokes of 64 B and their echo, 8 a second, over 20 Mbit/s, 40 ms, idle or beside a bulk stream",
			bench.Tsnet, bench.WireGuardBBR, bench.WireGuardCUBIC)
		s.Benchmark = "WAN/keys-" + path.Base(cell)
		s.Spec = load.Spec{Load: load.LoadRequests, Streams: 1, Size: keySize, Rate: keysPerSecond, Busy: cell == cellKeysBusy}
		s.Metrics = []bench.Metric{keyP50, keyP99}
		if s.Spec.Busy {
			s.Metrics = append(s.Metrics, bulk())
		}
		s.Path, s.Runs, s.window = Path{RTT: keysRTT, Rate: keysRate}, cleanRuns, keysWindow
		out = append(out, s)
	}
	return out
}

func bulk() bench.Metric {
	m := bench.Bulk
	m.Scale, m.Digits, m.TableUnit = 1e-6, 1, "bulk Mbit/s"
	return m
}

// Select returns the named scenarios and those whose cells match a pattern, and within them the
// named subjects, as [bench.Select] does. Patterns are [path.Match]'s, for a cell or its first
// words: "100ms" matches all cells of 100 ms.
func Select(all []Scenario, scenarios, patterns, subjects []string) ([]Scenario, error) {
	plain := make([]bench.Scenario, len(all))
	names := slices.Clone(scenarios)
	for i, s := range all {
		plain[i] = s.Scenario
		if len(subjects) == 0 {
			plain[i].Subjects = without(s.Subjects, s.asked...)
		}
	}
	for _, pattern := range patterns {
		n := len(names)
		for _, s := range all {
			if matches(pattern, s.Cell) {
				names = append(names, s.Name)
			}
		}
		if len(names) == n {
			return nil, fmt.Errorf("no cell is like %q", pattern)
		}
	}
	kept, err := bench.Select(plain, names, subjects)
	if err != nil {
		return nil, err
	}
	var out []Scenario
	for _, k := range kept {
		i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == k.Name })
		s := all[i]
		s.Scenario = k
		out = append(out, s)
	}
	return out, nil
}

// Without returns the scenarios without a subject.
func Without(all []Scenario, subject string) []Scenario {
	out := slices.Clone(all)
	for i, s := range out {
		out[i].Subjects = without(s.Subjects, subject)
	}
	return out
}

func without(names []string, others ...string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

func matches(pattern, cell string) bool {
	for ; cell != "."; cell = path.Dir(cell) {
		if ok, err := path.Match(pattern, cell); err == nil && ok {
			return true
		}
	}
	return false
}
