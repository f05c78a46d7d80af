package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"

	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/bench/load"
)

// Values of kind and version in a report's JSON form. Older programs refuse a greater version.
// Additions do not change the version.
const (
	ReportKind    = "BenchReport"
	ReportVersion = 2
)

// Report holds the measurements of a run of the benchmarks. Its JSON form contains the raw result
// of every run; everything else is computed from these.
type Report struct {
	APIVersion string  `json:"apiVersion,omitempty"` // [api.Version]; Version is the format's
	Kind       string  `json:"kind"`
	Version    int     `json:"version"`
	Machine    Machine `json:"machine"`
	Rounds     int     `json:"rounds"`
	Seconds    float64 `json:"secondsPerRun"`
	Warmup     float64 `json:"warmupSeconds"`
	// CPUs, in cores, and Memory, in bytes, are the limits of [Options]; 0 means none.
	CPUs     float64 `json:"cpus,omitempty"`
	Memory   uint64  `json:"memoryBytes,omitempty"`
	Subjects []About `json:"subjects"`
	// Cells are in the order of the runs.
	Cells []Cell `json:"cells"`
}

// limits returns the limits of subjects without their own.
func (r *Report) limits() limits.Limits { return limits.Limits{CPUs: r.CPUs, Memory: r.Memory} }

// Machine describes where a report was measured.
type Machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu,omitempty"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel,omitempty"`
	Go     string `json:"go"`
}

func thisMachine() Machine {
	return Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: processorModel(),
		Cores: runtime.NumCPU(), Kernel: kernelRelease(), Go: runtime.Version(),
	}
}

// About describes a subject.
type About struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// Cell is a scenario with a subject, and has a run for each round.
type Cell struct {
	Scenario string `json:"scenario"`
	Subject  string `json:"subject"`
	Runs     []Run  `json:"runs"`

	scenario Scenario
}

// Run is one run: a result, or the reason why there is none.
type Run struct {
	Result *load.Result `json:"result,omitempty"`
	Error  string       `json:"error,omitempty"`
}

// Values returns a metric's value in each round, NaN where there is none.
func (c Cell) Values(m Metric) []float64 {
	out := make([]float64, len(c.Runs))
	for i, r := range c.Runs {
		out[i] = math.NaN()
		if r.Result == nil {
			continue
		}
		if v := m.Of(*r.Result); m.measured(v) {
			out[i] = v
		}
	}
	return out
}

// Summary summarizes a metric over the rounds that have a value.
func (c Cell) Summary(m Metric) Summary {
	return Summarize(slices.DeleteFunc(c.Values(m), math.IsNaN))
}

// Failures returns the number of rounds without a result and the reason of the last one.
func (c Cell) Failures() (n int, reason string) {
	for _, r := range c.Runs {
		if r.Result == nil {
			n++
			reason = r.Error
		}
	}
	return n, reason
}

// Cell returns a cell; ok is false if the report has none.
func (r *Report) Cell(scenario, subject string) (c Cell, ok bool) {
	for _, c := range r.Cells {
		if c.Scenario == scenario && c.Subject == subject {
			return c, true
		}
	}
	return Cell{}, false
}

// Ratio returns the ratio of one cell's metric to another's, by round.
func (r *Report) Ratio(m Metric, of, to CellName) Summary {
	return Summarize(Ratios(r.pairs(m, of, to)))
}

// Difference returns one cell's metric minus another's, by round.
func (r *Report) Difference(m Metric, of, to CellName) Summary {
	return Summarize(Differences(r.pairs(m, of, to)))
}

// pairs returns a metric's values in two cells, by round; none for a cell that was not run.
func (r *Report) pairs(m Metric, of, to CellName) (a, b []float64) {
	cellA, okA := r.Cell(of.Scenario, of.Subject)
	cellB, okB := r.Cell(to.Scenario, to.Subject)
	if !okA || !okB {
		return nil, nil
	}
	return cellA.Values(m), cellB.Values(m)
}

// CellName identifies a cell.
type CellName struct{ Scenario, Subject string }

// ReadReport reads a report's JSON form. Its cells may be of the scenarios of this package and of
// more.
func ReadReport(from io.Reader, more ...Scenario) (*Report, error) {
	r := new(Report)
	if err := json.NewDecoder(from).Decode(r); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if r.Kind != ReportKind {
		return nil, fmt.Errorf("read report: it is of kind %q, not %s", r.Kind, ReportKind)
	}
	if r.Version < 1 || r.Version > ReportVersion {
		return nil, fmt.Errorf("read report: it is of version %d, and this program reads 1 to %d", r.Version, ReportVersion)
	}
	known := slices.Concat(Scenarios(), PeerScenarios(), more)
	for i := range r.Cells {
		c := &r.Cells[i]
		c.scenario = Scenario{Name: c.Scenario, Title: "not known to this version"}
		if at := slices.IndexFunc(known, func(s Scenario) bool { return s.Name == c.Scenario }); at >= 0 {
			c.scenario = known[at]
		}
	}
	return r, nil
}

// Document is the JSON form: a report and what is computed from it.
type Document struct {
	*Report
	Metrics      []MetricSummary `json:"metrics"`
	Requirements []Outcome       `json:"requirements"`
}

// MetricSummary is the summary of one cell's metric.
type MetricSummary struct {
	Scenario string  `json:"scenario"`
	Subject  string  `json:"subject"`
	Metric   string  `json:"metric"`
	Unit     string  `json:"unit"`
	Summary  Summary `json:"summary"`
}

// Document returns the report with its metrics and the outcomes of the requirements.
func (r *Report) Document(requirements []Requirement) Document {
	d := Document{Report: r, Requirements: Judge(r, requirements)}
	for _, c := range r.Cells {
		for _, m := range c.scenario.Metrics {
			if s := c.Summary(m); len(s.Values) > 0 {
				d.Metrics = append(d.Metrics, MetricSummary{c.Scenario, c.Subject, m.Name, m.Unit, s})
			}
		}
	}
	return d
}

// WriteJSON writes the report with the outcomes of the requirements.
func (r *Report) WriteJSON(w io.Writer) error { return EncodeJSON(r.Document(Requirements()), w) }

// EncodeJSON writes a document, or a type that embeds one.
func EncodeJSON(document any, w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		return fmt.Errorf("bench: write JSON: %w", err)
	}
	return nil
}
