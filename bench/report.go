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

// ReportKind and ReportVersion head the JSON form. A greater version is not read by
// older programs; additions do not change it.
const (
	ReportKind    = "BenchReport"
	ReportVersion = 2
)

// Report is what a run of the benchmarks measured. Its JSON form holds every run's raw
// result, from which everything else is computed.
type Report struct {
	APIVersion string  `json:"apiVersion,omitempty"` // [api.Version]; the format's own is Version
	Kind       string  `json:"kind"`
	Version    int     `json:"version"`
	Machine    Machine `json:"machine"`
	Rounds     int     `json:"rounds"`
	Seconds    float64 `json:"secondsPerRun"`
	Warmup     float64 `json:"warmupSeconds"`
	// CPUs, in cores, and Memory, in bytes, are the limits of [Options]; 0 is no limit.
	CPUs     float64 `json:"cpus,omitempty"`
	Memory   uint64  `json:"memoryBytes,omitempty"`
	Subjects []About `json:"subjects"`
	// Cells are in the order of the runs.
	Cells []Cell `json:"cells"`
}

// limits are those of subjects that have none of their own.
func (r *Report) limits() limits.Limits { return limits.Limits{CPUs: r.CPUs, Memory: r.Memory} }

// Machine is what the figures were measured on.
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

// About is a subject's line in the report.
type About struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// Cell is a scenario borne by a subject, with a run for every round.
type Cell struct {
	Scenario string `json:"scenario"`
	Subject  string `json:"subject"`
	Runs     []Run  `json:"runs"`

	scenario Scenario
}

// Run is one run: a result, or the reason that there is none.
type Run struct {
	Result *load.Result `json:"result,omitempty"`
	Error  string       `json:"error,omitempty"`
}

// Values are a metric's values by round, NaN where there is none.
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

// Summary of a metric over the rounds that have a value.
func (c Cell) Summary(m Metric) Summary {
	return Summarize(slices.DeleteFunc(c.Values(m), math.IsNaN))
}

// Failures counts the rounds without a result and returns the last one's reason.
func (c Cell) Failures() (n int, reason string) {
	for _, r := range c.Runs {
		if r.Result == nil {
			n++
			reason = r.Error
		}
	}
	return n, reason
}

// Cell finds a cell; ok is false when it was not among the runs.
func (r *Report) Cell(scenario, subject string) (c Cell, ok bool) {
	for _, c := range r.Cells {
		if c.Scenario == scenario && c.Subject == subject {
			return c, true
		}
	}
	return Cell{}, false
}

// Ratio of one cell's metric to another's, by round.
func (r *Report) Ratio(m Metric, of, to CellName) Summary {
	return Summarize(Ratios(r.pairs(m, of, to)))
}

// Difference of one cell's metric from another's, by round.
func (r *Report) Difference(m Metric, of, to CellName) Summary {
	return Summarize(Differences(r.pairs(m, of, to)))
}

// pairs are a metric's values in two cells, by round; none where a cell was not run.
func (r *Report) pairs(m Metric, of, to CellName) (a, b []float64) {
	cellA, okA := r.Cell(of.Scenario, of.Subject)
	cellB, okB := r.Cell(to.Scenario, to.Subject)
	if !okA || !okB {
		return nil, nil
	}
	return cellA.Values(m), cellB.Values(m)
}

// CellName names a cell.
type CellName struct{ Scenario, Subject string }

// ReadReport reads the JSON form of a report with the scenarios of this package, or more.
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

// Document is the JSON form: a report with what follows from it.
type Document struct {
	*Report
	Metrics      []MetricSummary `json:"metrics"`
	Requirements []Outcome       `json:"requirements"`
}

// MetricSummary is a cell's.
type MetricSummary struct {
	Scenario string  `json:"scenario"`
	Subject  string  `json:"subject"`
	Metric   string  `json:"metric"`
	Unit     string  `json:"unit"`
	Summary  Summary `json:"summary"`
}

// Document is the report with its metrics and what became of the requirements.
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

// WriteJSON writes the report with the requirements' outcome.
func (r *Report) WriteJSON(w io.Writer) error { return EncodeJSON(r.Document(Requirements()), w) }

// EncodeJSON writes a document, or one with more in it.
func EncodeJSON(document any, w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		return fmt.Errorf("bench: write JSON: %w", err)
	}
	return nil
}
