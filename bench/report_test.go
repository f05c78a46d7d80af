package bench

import (
	"bytes"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/bench/load"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// run returns a run with the given rate over a window of 2 s and one busy core.
func run(gbits float64, mb uint64) Run {
	return Run{Result: &load.Result{
		Bytes: uint64(gbits * 2e9 / 8), Seconds: 2, UserSeconds: 1.5, SystemSeconds: 0.5,
		PeakRSS: mb * 1e6, PeakAnon: (mb - 5) * 1e6,
	}}
}

// answers returns a run of requests with the given median, in seconds. It has too few requests
// for the other quantiles.
func answers(median float64) Run {
	return Run{Result: &load.Result{
		Bytes: 1e6, Seconds: 2, Values: map[string]float64{load.UnitMedian: median, load.UnitRequests: 50}, UserSeconds: 0.2, PeakRSS: 30e6,
	}}
}

// losses returns a run of datagrams with the given loss ratio.
func losses(ratio float64) Run {
	return Run{Result: &load.Result{
		Bytes: 1e6, Seconds: 2, Values: map[string]float64{load.UnitLost: ratio, load.UnitPackets: 10_000 * (1 - ratio)}, UserSeconds: 0.2, PeakRSS: 30e6,
	}}
}

// sample returns a report with a subject that always runs, one that failed once and one that
// cannot run.
func sample() *Report {
	scenarios := Scenarios()
	cell := func(name, subject string, runs ...Run) Cell {
		i := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Name == name })
		return Cell{Scenario: name, Subject: subject, Runs: runs, scenario: scenarios[i]}
	}
	down := Run{Error: "build bench/peers: exit status 1: no such module"}
	absent := Run{Error: "coturn is not installed"}
	return &Report{
		Kind: ReportKind, Version: ReportVersion,
		Machine: Machine{OS: "linux", Arch: "amd64", CPU: "Sample CPU", Cores: 2, Kernel: "6.18", Go: "go1.26.8"},
		Rounds:  3, Seconds: 2, Warmup: 1,
		Subjects: []About{{Postern, "ours"}, {Stock, "theirs"}, {Loopback, "none"}},
		Cells: []Cell{
			cell("tcp-1", Postern, run(4, 100), run(4.4, 110), run(3.6, 105)),
			cell("tcp-1", Stock, run(1, 200), Run{Error: "no result after 64s"}, run(0.8, 300)),
			cell("tcp-4", Postern, run(3, 150), run(3.3, 170), run(3.1, 160)),
			cell("tcp-4", Loopback, down, down, down),
			cell("path", Postern, run(4, 100), run(4.4, 110), run(3.6, 105)),
			cell("path", PosternPaths, run(4.04, 100), run(4.4, 110), run(3.564, 105)),
			cell("path", CoturnUDP, absent, absent, absent),
			cell("requests", Postern, answers(0.00021), answers(0.0002), answers(0.00022)),
			cell("requests", Loopback, answers(0.00003), answers(0.00004), answers(0.00005)),
			cell("udp-loss", Postern, losses(0), losses(0), losses(0.001)),
		},
	}
}

func TestReportFormats(t *testing.T) {
	for name, write := range map[string]func(*Report, io.Writer) error{
		"report.table":     (*Report).WriteTable,
		"report.json":      (*Report).WriteJSON,
		"report.benchstat": (*Report).WriteBenchstat,
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(sample(), &got); err != nil {
				t.Fatal(err)
			}
			golden(t, name, got.String())
		})
	}
}

func TestRatioSkipsRoundsWithoutBothSides(t *testing.T) {
	got := sample().Ratio(Throughput, CellName{"tcp-1", Postern}, CellName{"tcp-1", Stock})
	if d := cmp.Diff([]float64{4, 4.5}, got.Values); d != "" {
		t.Errorf("ratios: -want +got:\n%s", d)
	}
	if s := sample().Ratio(Throughput, CellName{"tcp-1", Postern}, CellName{"tcp-9", Stock}); len(s.Values) != 0 {
		t.Errorf("ratio to a missing cell: got %v, want none", s.Values)
	}
}

func TestJudge(t *testing.T) {
	one, stock := CellName{"tcp-1", Postern}, CellName{"tcp-1", Stock}
	idle, plain := CellName{"requests", Postern}, CellName{"requests", Loopback}
	for _, c := range []struct {
		name string
		q    Requirement
		want Verdict
	}{
		{"median above the lower bound", Requirement{Metric: Throughput, Of: one, To: stock, AtLeast: 4}, Pass},
		{"median below the lower bound", Requirement{Metric: Throughput, Of: one, To: stock, AtLeast: 4.3}, Fail},
		{"median below the upper bound", Requirement{Metric: PeakMemory, Of: one, To: stock, AtMost: 0.8}, Pass},
		{"median above the upper bound", Requirement{Metric: PeakMemory, Of: one, To: stock, AtMost: 0.4}, Fail},
		{"the difference below the bound", Requirement{Metric: Median, Of: idle, To: plain, By: ByDifference, AtMost: 171e-6}, Pass},
		{"the difference above the bound", Requirement{Metric: Median, Of: idle, To: plain, By: ByDifference, AtMost: 169e-6}, Fail},
		{"half the difference below the bound", Requirement{Metric: Median, Of: idle, To: plain, By: ByEachWay, AtMost: 85e-6}, Pass},
		{"half the difference above the bound", Requirement{Metric: Median, Of: idle, To: plain, By: ByEachWay, AtMost: 75e-6}, Fail},
		{"the value itself above the lower bound", Requirement{Metric: Throughput, Of: one, AtLeast: 3.9e9}, Pass},
		{"the value itself below the lower bound", Requirement{Metric: Throughput, Of: one, AtLeast: 4.1e9}, Fail},
		{"a quantile above the lower bound", Requirement{Metric: Throughput, Of: one, AtLeast: 3.7e9, Quantile: 0.25}, Pass},
		{"a quantile below the lower bound", Requirement{Metric: Throughput, Of: one, AtLeast: 3.9e9, Quantile: 0.25}, Fail},
		{"the value of a cell that was not run", Requirement{Metric: Throughput, Of: CellName{"tcp-9", Postern}, AtLeast: 1}, Unknown},
		{"a metric that was not measured", Requirement{Metric: P99, Of: idle, To: plain, AtMost: 1}, Unknown},
		{"a side that was not measured", Requirement{Metric: Throughput, Of: CellName{"tcp-4", Loopback}, To: one, AtLeast: 1}, Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Judge(sample(), []Requirement{c.q})
			if len(got) != 1 || got[0].Verdict != c.want {
				t.Errorf("got %+v, want verdict %s", got, c.want)
			}
		})
	}
}

func TestAReportOfLimitedRunsSaysSoAndIsNotJudged(t *testing.T) {
	limited := sample()
	limited.CPUs, limited.Memory = 0.5, 64<<20
	for _, c := range []struct {
		name  string
		write func(*Report, io.Writer) error
		want  string
	}{
		{"table", (*Report).WriteTable, "\nwithin 0.5 CPU, 64 MiB, but for subjects that have limits of their own\n"},
		{"JSON", (*Report).WriteJSON, "\"cpus\": 0.5,\n  \"memoryBytes\": 67108864,\n"},
		{"benchstat", (*Report).WriteBenchstat, "\nlimits: 0.5 CPU, 64 MiB\n"},
	} {
		var got bytes.Buffer
		if err := c.write(limited, &got); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.String(), c.want) || strings.Contains(got.String(), "PASS") {
			t.Errorf("%s: got %s\nwant it to contain %q and no verdict", c.name, got.String(), c.want)
		}
	}
	if got, want := Compare(sample(), limited).Unlike, []string{"limits: no limits before, 0.5 CPU, 64 MiB after"}; !slices.Equal(got, want) {
		t.Errorf("compared with a report without limits: got %q, want %q", got, want)
	}
}

func TestAReportIsReadAsItWasWritten(t *testing.T) {
	var text bytes.Buffer
	want := sample()
	if err := want.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	got, err := ReadReport(&text)
	if err != nil {
		t.Fatal(err)
	}
	var tables [2]bytes.Buffer
	for i, r := range []*Report{want, got} {
		if err := r.WriteTable(&tables[i]); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(tables[0].String(), tables[1].String()); d != "" {
		t.Errorf("table of the decoded report: -want +got:\n%s", d)
	}
}

func TestOtherFilesAreNoReports(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "EOF",
		`{"kind":"Pod"}`:                     `of kind "Pod"`,
		`{"kind":"BenchReport","version":3}`: "of version 3, and this program reads 1 to 2",
	} {
		if _, err := ReadReport(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", text, err, want)
		}
	}
}

// TestDefinitionsFitTogether checks the tables of scenarios, subjects and requirements for names
// that do not exist: such a row would be empty and easy to miss.
func TestDefinitionsFitTogether(t *testing.T) {
	cells := make(map[CellName]bool)
	subjects := Subjects(Programs{Self: []string{"self"}, Relay: []string{"relay"}, Peers: "peers", Dir: t.TempDir()})
	for _, sc := range Scenarios() {
		for _, name := range sc.Subjects {
			cells[CellName{sc.Name, name}] = true
			if _, ok := (&Runner{Subjects: subjects}).subject(name); !ok {
				t.Errorf("scenario %s: no subject %q", sc.Name, name)
			}
		}
	}
	for _, q := range Requirements() {
		for _, c := range []CellName{q.Of, q.To} {
			if !cells[c] {
				t.Errorf("requirement %q: nothing measures %v", q.Name, c)
			}
		}
		if q.AtLeast == 0 && q.AtMost == 0 {
			t.Errorf("requirement %q bounds nothing", q.Name)
		}
	}
}
