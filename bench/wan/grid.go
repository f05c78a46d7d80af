package wan

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/load"
)

const (
	// gridRate is the rate of the grid's paths, in bits per second.
	gridRate = 1e9
	// gridWarmup is what slow start has before the window: twelve round trips of 200 ms
	// double a window of 10 packets to 40,000, which is twice what 1 Gbit/s holds.
	gridWarmup = 4 * time.Second
	gridWindow = 10 * time.Second
	// lossyRuns is the number of runs where chance decides, and lossyWindow what each
	// measures: with 1 % of loss runs of 10 s of one subject differ by a half, and nine of them
	// told a ratio of 0.8 at 200 ms where fifteen of 25 s told 1.2.
	lossyRuns   = 9
	lossyWindow = 25 * time.Second
	// cleanRuns is the number elsewhere.
	cleanRuns = 3

	// The link of the keystrokes: a home's uplink. Its queue is the least that a [Path] has,
	// 105 ms of it.
	keysRate = 20e6
	keysRTT  = 40 * time.Millisecond
	// A fast typist's 8 keys a second; the window has 240 of them, so that the 99th
	// percentile is the third slowest.
	keysPerSecond = 8
	keysWindow    = 30 * time.Second
	keySize       = 64
)

// The grid's axes.
var (
	gridRTTs   = []time.Duration{1 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}
	gridLosses = []float64{0, 0.001, 0.01}
)

// The scenarios of keystrokes, after "wan-".
const (
	kindKeysIdle = "keys-idle"
	kindKeysBusy = "keys-busy"
)

// Scenario is a load over a path.
type Scenario struct {
	bench.Scenario
	Path Path
	// Runs is the number of rounds that tell enough.
	Runs   int
	warmup time.Duration
	window time.Duration
}

// throughput is bench's, on the scale of long paths.
func throughput() bench.Metric {
	m := bench.Throughput
	m.Scale, m.Digits, m.TableUnit = 1e-6, 1, "Mbit/s"
	return m
}

// Scenarios returns the grid, one stream each, and the keystrokes, idle and beside a bulk
// stream.
func Scenarios() []Scenario {
	subjects := []string{bench.Postern, Reference}
	var out []Scenario
	for _, rtt := range gridRTTs {
		for _, loss := range gridLosses {
			s := Scenario{
				Scenario: bench.Scenario{
					Default:   true,
					Name:      fmt.Sprintf("wan-%dms-%g%%", rtt.Milliseconds(), loss*100),
					Title:     fmt.Sprintf("one TCP stream over 1 Gbit/s, %d ms, %g %% of loss", rtt.Milliseconds(), loss*100),
					Benchmark: fmt.Sprintf("WAN/rtt=%dms/loss=%g%%", rtt.Milliseconds(), loss*100),
					Spec:      load.Spec{Streams: 1},
					Subjects:  subjects, Reference: Reference,
					Metrics: []bench.Metric{throughput(), bench.Cores, bench.PeakMemory},
				},
				Path: Path{RTT: rtt, Rate: gridRate, Loss: loss},
				Runs: cleanRuns, warmup: gridWarmup, window: gridWindow,
			}
			if loss >= 0.01 {
				s.Runs, s.window = lossyRuns, lossyWindow
			}
			out = append(out, s)
		}
	}
	for _, kind := range []string{kindKeysIdle, kindKeysBusy} {
		out = append(out, Scenario{
			Scenario: bench.Scenario{
				Default: true, Name: "wan-" + kind, Title: keysTitle(kind), Benchmark: "WAN/" + kind,
				Spec: load.Spec{
					Load: load.LoadRequests, Streams: 1, Size: keySize, Rate: keysPerSecond, Busy: kind == kindKeysBusy,
				},
				Subjects: subjects, Reference: Reference, Metrics: []bench.Metric{keyP50, keyP99},
			},
			Path: Path{RTT: keysRTT, Rate: keysRate},
			Runs: cleanRuns, warmup: gridWarmup, window: keysWindow,
		})
	}
	return out
}

func keysTitle(kind string) string {
	title := "keystrokes of 64 B and their echo, 8 a second, over 20 Mbit/s, 40 ms"
	if kind == kindKeysBusy {
		title += ", beside a bulk stream"
	}
	return title
}

// keyP50 and keyP99 are how long keystrokes take, until the echo is there.
var keyP50, keyP99 = milliseconds(bench.Median, "ms p50"), milliseconds(bench.P99, "ms p99")

// milliseconds puts a delay on the scale of long paths.
func milliseconds(m bench.Metric, unit string) bench.Metric {
	m.Scale, m.Digits, m.TableUnit = 1e3, 1, unit
	return m
}

// Select keeps the scenarios and, within them, the subjects of the given names, as
// [bench.Select] does.
func Select(all []Scenario, scenarios, subjects []string) ([]Scenario, error) {
	plain := make([]bench.Scenario, len(all))
	for i, s := range all {
		plain[i] = s.Scenario
	}
	kept, err := bench.Select(plain, scenarios, subjects)
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

// Reference is the subject that the grid compares postern with.
const Reference = bench.Tsnet

// Grid makes the runs. It is used once.
type Grid struct {
	Scenarios []Scenario
	Subjects  []bench.Subject
	// Forwarder is the program that calls [Serve] with its last argument.
	Forwarder []string
	// Runs, Duration and Warmup are instead of the scenarios' own, unless they are 0. The rest is as for a [bench.Runner].
	Options bench.Options
}

// Run makes every run. Rounds are interleaved and turned as a [bench.Runner]'s are; in a
// round all subjects meet the same losses, by the packets' numbers.
func (g *Grid) Run(ctx context.Context) (*bench.Report, error) {
	subjects := preparedOnce(g.Subjects)
	rounds, total := 0, 0
	for _, s := range g.Scenarios {
		rounds = max(rounds, g.runs(s))
		total += g.runs(s) * len(s.Subjects)
	}
	var report *bench.Report
	done := 0
	for round := range rounds {
		for i := range g.Scenarios {
			if round%2 == 1 {
				i = len(g.Scenarios) - 1 - i
			}
			s := g.Scenarios[i]
			if round >= g.runs(s) {
				continue
			}
			s.Path.Seed = uint64(round + 1)
			part, err := g.once(ctx, s, subjects, round%2 == 1, func(p bench.Progress) {
				done++
				p.Done, p.Of = done, total
				if g.Options.Progress != nil {
					g.Options.Progress(p)
				}
			})
			if err != nil {
				return nil, err
			}
			report = merge(report, part)
		}
	}
	if report == nil {
		return nil, fmt.Errorf("wan: no scenario to run")
	}
	report.Rounds = rounds
	g.order(report)
	return report, nil
}

func (g *Grid) runs(s Scenario) int {
	if g.Options.Runs > 0 {
		return g.Options.Runs
	}
	return s.Runs
}

// once makes one run of each subject over a path.
func (g *Grid) once(ctx context.Context, s Scenario, subjects []bench.Subject, turned bool, progress func(bench.Progress)) (*bench.Report, error) {
	o := g.Options
	o.Runs, o.Progress = 1, progress
	if o.Duration == 0 {
		o.Duration = s.window
	}
	if o.Warmup == 0 {
		o.Warmup = s.warmup
	}
	if turned {
		s.Subjects = slices.Clone(s.Subjects)
		slices.Reverse(s.Subjects)
	}
	over := slices.Clone(subjects)
	for i, subject := range over {
		over[i].Run = func(ctx context.Context, spec load.Spec) (load.Result, error) {
			return g.over(ctx, s, spec, subject.Run)
		}
	}
	return (&bench.Runner{Scenarios: []bench.Scenario{s.Scenario}, Subjects: over, Options: o}).Run(ctx)
}

// Units of what the forwarder has seen of a run, in a [load.Result].
const (
	unitLost     = "path-lost-packets"
	unitOverflow = "path-overflow-packets"
	unitMissed   = "path-missed-packets"
	unitLate     = "path-late-deliveries"
)

// over makes a run over a path.
func (g *Grid) over(ctx context.Context, s Scenario, spec load.Spec, run func(context.Context, load.Spec) (load.Result, error)) (load.Result, error) {
	f, err := Start(ctx, g.Forwarder, s.Path)
	if err != nil {
		return load.Result{}, err
	}
	spec.Via = f.At.String()
	r, err := run(ctx, spec)
	t, stopped := f.Stop()
	if err == nil {
		err = stopped
	}
	if err != nil {
		return load.Result{}, err
	}
	if r.Values == nil {
		r.Values = make(map[string]float64)
	}
	r.Values[unitLost] = float64(t.Forward.Lost + t.Backward.Lost)
	r.Values[unitOverflow] = float64(t.Forward.Overflow + t.Backward.Overflow)
	r.Values[unitMissed] = float64(t.Missed)
	r.Values[unitLate] = float64(t.Late)
	return r, nil
}

// preparedOnce are subjects that are prepared when they are first, and never again.
func preparedOnce(subjects []bench.Subject) []bench.Subject {
	out := slices.Clone(subjects)
	for i, s := range out {
		if s.Prepare == nil {
			continue
		}
		var once sync.Once
		var err error
		out[i].Prepare = func(ctx context.Context) error {
			once.Do(func() { err = s.Prepare(ctx) })
			return err
		}
	}
	return out
}

// merge adds a report's runs to what there is.
func merge(all, part *bench.Report) *bench.Report {
	if all == nil {
		return part
	}
	for _, c := range part.Cells {
		i := slices.IndexFunc(all.Cells, func(o bench.Cell) bool { return o.Scenario == c.Scenario && o.Subject == c.Subject })
		if i < 0 {
			all.Cells = append(all.Cells, c)
		} else {
			all.Cells[i].Runs = append(all.Cells[i].Runs, c.Runs...)
		}
	}
	for _, a := range part.Subjects {
		if !slices.Contains(all.Subjects, a) {
			all.Subjects = append(all.Subjects, a)
		}
	}
	return all
}

// order sorts the cells as the scenarios have them, whatever ran first.
func (g *Grid) order(r *bench.Report) {
	rank := func(c bench.Cell) int {
		i := slices.IndexFunc(g.Scenarios, func(s Scenario) bool { return s.Name == c.Scenario })
		return i*len(g.Subjects) + slices.Index(g.Scenarios[i].Subjects, c.Subject)
	}
	slices.SortStableFunc(r.Cells, func(a, b bench.Cell) int { return rank(a) - rank(b) })
}
