package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/bench/load"
)

// recorder provides fake subjects and records which of them ran.
type recorder struct{ log []string }

func (r *recorder) subject(name string, err error) Subject {
	return Subject{Name: name, About: "fake", Run: func(_ context.Context, spec load.Spec) (load.Result, error) {
		r.log = append(r.log, name)
		return load.Result{Bytes: uint64(len(r.log)), Seconds: spec.Duration.Seconds()}, err
	}}
}

func scenario(name string, subjects ...string) Scenario {
	return Scenario{Name: name, Default: true, Spec: load.Spec{Streams: 1}, Subjects: subjects, Metrics: []Metric{Throughput}}
}

var someOptions = Options{Runs: 2, Duration: time.Second}

func TestRunnerInterleavesRoundsAndTurnsEveryOther(t *testing.T) {
	var rec recorder
	var progress []int
	o := someOptions
	o.Progress = func(p Progress) { progress = append(progress, p.Done, p.Of) }
	report, err := (&Runner{
		Scenarios: []Scenario{scenario("s", "a", "b"), scenario("t", "c")},
		Subjects:  []Subject{rec.subject("a", nil), rec.subject("b", nil), rec.subject("c", nil), rec.subject("unused", nil)},
		Options:   o,
	}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a", "b", "c", "c", "b", "a"}, rec.log); d != "" {
		t.Errorf("order of runs: -want +got:\n%s", d)
	}
	if d := cmp.Diff([]int{1, 6, 2, 6, 3, 6, 4, 6, 5, 6, 6, 6}, progress); d != "" {
		t.Errorf("progress: -want +got:\n%s", d)
	}
	cell, ok := report.Cell("s", "a")
	if !ok {
		t.Fatal("no cell s/a in the report")
	}
	if got, want := cell.Values(Throughput), []float64{8, 48}; !cmp.Equal(got, want) {
		t.Errorf("values of s/a: got %v, want those of the first and last run, %v", got, want)
	}
	if len(report.Subjects) != 3 {
		t.Errorf("subjects in the report: got %v, want the three of the scenarios", report.Subjects)
	}
}

func TestRunnerKeepsASubjectThatFails(t *testing.T) {
	var rec recorder
	report, err := (&Runner{
		Scenarios: []Scenario{scenario("s", "bad", "good")},
		Subjects:  []Subject{rec.subject("bad", errors.New("no such device")), rec.subject("good", nil)},
		Options:   someOptions,
	}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bad, _ := report.Cell("s", "bad")
	if n, reason := bad.Failures(); n != 2 || reason != "no such device" {
		t.Errorf("failures of bad: got %d, %q; want 2 with the reason", n, reason)
	}
	good, _ := report.Cell("s", "good")
	if n, _ := good.Failures(); n != 0 || len(good.Runs) != 2 {
		t.Errorf("good: got %d failures in %d runs, want 0 in 2", n, len(good.Runs))
	}
}

func TestRunnerPreparesOnceAndSaysWhatCannotBeBuilt(t *testing.T) {
	var rec recorder
	built := 0
	broken := rec.subject("broken", nil)
	broken.Prepare = func(context.Context) error {
		built++
		return errors.New("no compiler")
	}
	report, err := (&Runner{
		Scenarios: []Scenario{scenario("s", "broken", "good"), scenario("t", "broken")},
		Subjects:  []Subject{broken, rec.subject("good", nil)},
		Options:   someOptions,
	}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if built != 1 {
		t.Errorf("prepared %d times, want once", built)
	}
	for _, scenario := range []string{"s", "t"} {
		cell, _ := report.Cell(scenario, "broken")
		if n, reason := cell.Failures(); n != 2 || reason != "no compiler" {
			t.Errorf("%s: got %d failures, %q; want 2 with the reason", scenario, n, reason)
		}
	}
	if d := cmp.Diff([]string{"good", "good"}, rec.log); d != "" {
		t.Errorf("runs: -want +got:\n%s", d)
	}
}

func TestRunnerStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	runs := 0
	_, err := (&Runner{
		Scenarios: []Scenario{scenario("s", "a")},
		Subjects: []Subject{{Name: "a", Run: func(context.Context, load.Spec) (load.Result, error) {
			runs++
			cancel(cause)
			return load.Result{}, ctx.Err()
		}}},
		Options: Options{Runs: 10, Duration: time.Second},
	}).Run(ctx)
	if !errors.Is(err, cause) || runs != 1 {
		t.Errorf("got error %v after %d runs, want %v after 1", err, runs, cause)
	}
}

func TestRunnerRefusesNonsense(t *testing.T) {
	var rec recorder
	a := []Subject{rec.subject("a", nil)}
	for _, c := range []struct {
		name   string
		runner Runner
		want   string
	}{
		{"no rounds", Runner{Scenarios: []Scenario{scenario("s", "a")}, Subjects: a, Options: Options{Duration: 1}}, "at least one run"},
		{"no window", Runner{Scenarios: []Scenario{scenario("s", "a")}, Subjects: a, Options: Options{Runs: 1}}, "at least one run"},
		{"no scenario", Runner{Subjects: a, Options: someOptions}, "no scenario"},
		{"unknown subject", Runner{Scenarios: []Scenario{scenario("s", "z")}, Subjects: a, Options: someOptions}, `no subject "z"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.runner.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestSubjectsKeepLimitsOfTheirOwn(t *testing.T) {
	asked := limits.Limits{CPUs: 2, Memory: 1 << 30}
	got := map[string]limits.Limits{}
	subject := func(name string, own limits.Limits) Subject {
		return Subject{Name: name, Limits: own, Run: func(_ context.Context, spec load.Spec) (load.Result, error) {
			got[name] = limits.Limits{CPUs: spec.CPUs, Memory: spec.Memory}
			return load.Result{Bytes: 1, Seconds: 1}, nil
		}}
	}
	r := Runner{
		Scenarios: []Scenario{scenario("s", "free", "lean", "slow")},
		Subjects: []Subject{
			subject("free", limits.Limits{}), subject("lean", limits.Limits{Memory: 64 << 20}), subject("slow", limits.Limits{CPUs: 0.5}),
		},
		Options: Options{Runs: 1, Duration: time.Second, Limits: asked},
	}
	if !r.Limitable() {
		t.Error("with a subject that has no limits: got not limitable")
	}
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]limits.Limits{"free": asked, "lean": {Memory: 64 << 20}, "slow": {CPUs: 0.5}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("limits of the runs: -want +got:\n%s", d)
	}
	r.Scenarios = []Scenario{scenario("s", "lean", "slow")}
	if r.Limitable() {
		t.Error("when all have limits of their own: got limitable")
	}
}

func TestSelect(t *testing.T) {
	all := []Scenario{scenario("s", "a", "b"), scenario("t", "b"), scenario("u", "c"), scenario("v", "a")}
	all[3].Default = false
	for _, c := range []struct {
		name                string
		scenarios, subjects []string
		want                string
		wantErr             string
	}{
		{name: "the default set", want: "s:a,b t:b u:c"},
		{name: "everything", scenarios: []string{"all"}, want: "s:a,b t:b u:c v:a"},
		{name: "one scenario", scenarios: []string{"t"}, want: "t:b"},
		{name: "one subject", subjects: []string{"b"}, want: "s:b t:b"},
		{name: "one that is in no default set", scenarios: []string{"v"}, want: "v:a"},
		{name: "both", scenarios: []string{"s", "u"}, subjects: []string{"a", "c"}, want: "s:a u:c"},
		{name: "unknown scenario", scenarios: []string{"x"}, wantErr: `no scenario "x"`},
		{name: "unknown subject", subjects: []string{"x"}, wantErr: `no subject "x"`},
		{name: "no cell left", scenarios: []string{"t"}, subjects: []string{"a"}, wantErr: "none of the scenarios"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Select(all, c.scenarios, c.subjects)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("got %v, want an error with %q", err, c.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, s := range got {
				parts = append(parts, s.Name+":"+strings.Join(s.Subjects, ","))
			}
			if text := strings.Join(parts, " "); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
}
