package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/control/api"
)

// Options configure the runs.
type Options struct {
	Runs     int           // rounds, and so runs of each cell; at least 1
	Duration time.Duration // the window of a run
	Warmup   time.Duration // the time before it
	// Limits apply to each run or, if a subject is processes of a program, to each process.
	// Subjects with their own limits only use those.
	Limits limits.Limits
	// ProfileDir receives a CPU and a heap profile of each run; empty means none.
	ProfileDir string
	// Progress is called after each run; it may be nil.
	Progress func(Progress)
}

// Progress describes a finished run.
type Progress struct {
	Done, Of          int
	Scenario, Subject string
	Run               Run

	metrics []Metric
}

// progressMetrics is the number of metrics in a progress line.
const progressMetrics = 3

// String returns a line about the run: its first metrics, or why it failed.
func (p Progress) String() string {
	head := fmt.Sprintf("[%d/%d] %s %s: ", p.Done, p.Of, p.Scenario, p.Subject)
	if p.Run.Result == nil {
		return head + "failed: " + p.Run.Error
	}
	var values []string
	for _, m := range p.metrics {
		if v := m.Of(*p.Run.Result); m.measured(v) && len(values) < progressMetrics {
			values = append(values, valueText(Summarize([]float64{v}), m)+" "+m.TableUnit)
		}
	}
	return head + strings.Join(values, ", ")
}

// Runner makes the runs. It can be used once.
type Runner struct {
	Scenarios []Scenario
	Subjects  []Subject
	Options   Options
}

// Run makes all runs, in reverse order every other round, and returns the measurements. It only
// fails if there is nothing to do or ctx ends: the failure of a subject is part of the report.
func (r *Runner) Run(ctx context.Context) (*Report, error) {
	if r.Options.Runs < 1 || r.Options.Duration <= 0 || r.Options.Warmup < 0 {
		return nil, fmt.Errorf("bench: %d runs of %s after %s: want at least one run of some length",
			r.Options.Runs, r.Options.Duration, r.Options.Warmup)
	}
	report, err := r.newReport()
	if err != nil {
		return nil, err
	}
	broken, err := r.prepare(ctx, report)
	if err != nil {
		return nil, err
	}
	done, total := 0, r.Options.Runs*len(report.Cells)
	for round := range r.Options.Runs {
		for i := range report.Cells {
			if round%2 == 1 {
				i = len(report.Cells) - 1 - i
			}
			cell := &report.Cells[i]
			run := r.once(ctx, round, cell, broken[cell.Subject])
			if ctx.Err() != nil {
				return nil, fmt.Errorf("bench: %w", context.Cause(ctx))
			}
			cell.Runs = append(cell.Runs, run)
			done++
			if r.Options.Progress != nil {
				r.Options.Progress(Progress{done, total, cell.Scenario, cell.Subject, run, cell.scenario.Metrics})
			}
		}
	}
	return report, nil
}

// Limitable reports whether the limits of [Options] would apply to any run. They do not if every
// subject of the scenarios has its own.
func (r *Runner) Limitable() bool {
	return slices.ContainsFunc(r.Scenarios, func(sc Scenario) bool {
		return slices.ContainsFunc(sc.Subjects, func(name string) bool {
			subject, ok := r.subject(name)
			return ok && !subject.Limits.Any()
		})
	})
}

// newReport creates the cells in the order of the runs.
func (r *Runner) newReport() (*Report, error) {
	report := &Report{
		APIVersion: api.Version, Kind: ReportKind, Version: ReportVersion,
		Machine: thisMachine(),
		Rounds:  r.Options.Runs,
		Seconds: r.Options.Duration.Seconds(),
		Warmup:  r.Options.Warmup.Seconds(),
		CPUs:    r.Options.Limits.CPUs,
		Memory:  r.Options.Limits.Memory,
	}
	for _, sc := range r.Scenarios {
		for _, name := range sc.Subjects {
			if _, ok := r.subject(name); !ok {
				return nil, fmt.Errorf("bench: scenario %s: no subject %q", sc.Name, name)
			}
			report.Cells = append(report.Cells, Cell{Scenario: sc.Name, Subject: name, scenario: sc})
		}
	}
	if len(report.Cells) == 0 {
		return nil, fmt.Errorf("bench: no scenario to run")
	}
	return report, nil
}

// prepare prepares each needed subject once, and returns the errors of those that failed.
func (r *Runner) prepare(ctx context.Context, report *Report) (broken map[string]error, err error) {
	broken = make(map[string]error)
	for _, s := range r.Subjects {
		if !slices.ContainsFunc(report.Cells, func(c Cell) bool { return c.Subject == s.Name }) {
			continue
		}
		report.Subjects = append(report.Subjects, About{s.Name, s.About})
		if s.Prepare == nil {
			continue
		}
		if err := s.Prepare(ctx); err != nil {
			broken[s.Name] = err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("bench: %w", context.Cause(ctx))
		}
	}
	return broken, nil
}

// once makes one run of a cell, unless preparing its subject failed.
func (r *Runner) once(ctx context.Context, round int, cell *Cell, broken error) Run {
	if broken != nil {
		return Run{Error: broken.Error()}
	}
	spec := cell.scenario.Spec
	spec.Subject, spec.Warmup, spec.Duration = cell.Subject, r.Options.Warmup, r.Options.Duration
	if dir := r.Options.ProfileDir; dir != "" {
		base := filepath.Join(dir, fmt.Sprintf("%s-%s-%d", cell.Scenario, cell.Subject, round+1))
		spec.CPUProfile, spec.HeapProfile = base+".cpu.prof", base+".heap.prof"
	}
	subject, _ := r.subject(cell.Subject)
	within := r.Options.Limits
	if subject.Limits.Any() {
		within = subject.Limits
	}
	spec.CPUs, spec.Memory = within.CPUs, within.Memory
	result, err := subject.Run(ctx, spec)
	if err != nil {
		_ = limits.Sweep() // a killed run cannot do this itself; without control groups there is nothing to do
		return Run{Error: err.Error()}
	}
	return Run{Result: &result}
}

func (r *Runner) subject(name string) (Subject, bool) {
	i := slices.IndexFunc(r.Subjects, func(s Subject) bool { return s.Name == name })
	if i < 0 {
		return Subject{}, false
	}
	return r.Subjects[i], true
}
