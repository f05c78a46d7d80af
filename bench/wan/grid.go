package wan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/load"
)

// Grid makes the runs. It can be used once.
type Grid struct {
	Scenarios []Scenario
	Subjects  []bench.Subject
	// Forwarder is the command line of the program that calls [Serve] with its last argument.
	Forwarder []string
	// Runs, Duration and Warmup replace the scenarios' own unless they are 0. The rest is as for
	// a [bench.Runner].
	Options bench.Options
}

// Run makes all runs. Rounds are interleaved, and every other one is reversed, as a
// [bench.Runner]'s. In a round all subjects have the same losses, by the packets' numbers.
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
	var rival bench.Subject
	if s.duel != nil {
		var err error
		if rival, err = find(subjects, s.duel.rival); err != nil {
			return nil, err
		}
	}
	over := slices.Clone(subjects)
	for i, subject := range over {
		beside := rival
		if s.duel != nil && s.duel.rival == self {
			beside = subject
		}
		over[i].Prepare = func(ctx context.Context) error { return errors.Join(prepare(ctx, subject), prepare(ctx, beside)) }
		over[i].Run = func(ctx context.Context, spec load.Spec) (load.Result, error) {
			return g.over(ctx, s, spec, subject, beside, turned)
		}
	}
	return (&bench.Runner{Scenarios: []bench.Scenario{s.Scenario}, Subjects: over, Options: o}).Run(ctx)
}

// find returns a subject by name; the zero value for "" and self.
func find(subjects []bench.Subject, name string) (bench.Subject, error) {
	if name == "" || name == self {
		return bench.Subject{}, nil
	}
	i := slices.IndexFunc(subjects, func(s bench.Subject) bool { return s.Name == name })
	if i < 0 {
		return bench.Subject{}, fmt.Errorf("wan: no subject %q", name)
	}
	return subjects[i], nil
}

func prepare(ctx context.Context, s bench.Subject) error {
	if s.Prepare == nil {
		return nil
	}
	return s.Prepare(ctx)
}

// Units of what the forwarder measures during a run, in a [load.Result].
const (
	unitLost     = "path-lost-packets"
	unitPoliced  = "path-policed-packets"
	unitOverflow = "path-overflow-packets"
	unitMissed   = "path-missed-packets"
	unitLate     = "path-late-deliveries"
)

// runFunc makes a run.
type runFunc = func(context.Context, load.Spec) (load.Result, error)

// over makes a run over a path. In a duel the rival, if there is one, runs at the same time: it
// begins first, or second if turned.
func (g *Grid) over(ctx context.Context, s Scenario, spec load.Spec, subject, rival bench.Subject, turned bool) (r load.Result, err error) {
	runs := []runFunc{subject.Run}
	if rival.Run != nil {
		runs = append(runs, as(rival))
	}
	f, err := Start(ctx, g.Forwarder, s.Path, len(runs))
	if err != nil {
		return load.Result{}, err
	}
	if s.duel != nil {
		behind := 0
		if turned {
			behind = 1
		}
		r, err = s.duel.run(ctx, f, s.Path, spec, runs, behind)
	} else {
		spec.Via = f.At[0].String()
		r, err = subject.Run(ctx, spec)
	}
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
	all := t.sum()
	r.Values[unitLost] = float64(all.Lost)
	r.Values[unitPoliced] = float64(all.Policed)
	r.Values[unitOverflow] = float64(all.Overflow)
	r.Values[unitMissed] = float64(t.Missed)
	r.Values[unitLate] = float64(t.Late)
	return r, nil
}

// as makes a subject's runs from specs of another subject.
func as(s bench.Subject) runFunc {
	return func(ctx context.Context, spec load.Spec) (load.Result, error) {
		spec.Subject = s.Name
		return s.Run(ctx, spec)
	}
}

// preparedOnce returns subjects whose Prepare only runs once.
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

// merge adds a report's runs to another's.
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

// order sorts the cells in the order of the scenarios.
func (g *Grid) order(r *bench.Report) {
	rank := func(c bench.Cell) int {
		i := slices.IndexFunc(g.Scenarios, func(s Scenario) bool { return s.Name == c.Scenario })
		return i*len(g.Subjects) + slices.Index(g.Scenarios[i].Subjects, c.Subject)
	}
	slices.SortStableFunc(r.Cells, func(a, b bench.Cell) int { return rank(a) - rank(b) })
}
