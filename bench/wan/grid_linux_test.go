package wan

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/load"
)

// fake is a subject whose two ends exchange one datagram by way of the forwarder.
func fake(name string, mbit float64, log *[]string) bench.Subject {
	return bench.Subject{Name: name, Run: func(ctx context.Context, spec load.Spec) (load.Result, error) {
		*log = append(*log, name)
		var ends [2]net.Conn
		for i := range ends {
			c, err := new(net.Dialer).DialContext(ctx, "udp4", spec.Via)
			if err != nil {
				return load.Result{}, err
			}
			defer c.Close()
			ends[i] = c
			if _, err := c.Write([]byte("hello")); err != nil {
				return load.Result{}, err
			}
		}
		if err := ends[1].SetDeadline(time.Now().Add(patience)); err != nil {
			return load.Result{}, err
		}
		b := make([]byte, 10)
		if n, err := ends[1].Read(b); err != nil || string(b[:n]) != "hello" {
			return load.Result{}, errors.Join(err, errors.New("no hello"))
		}
		return load.Result{Bytes: uint64(mbit * 1e6 / 8), Seconds: 1}, nil
	}}
}

func TestGridRunsEverySubjectOverThePath(t *testing.T) {
	var log []string
	prepared := 0
	postern := fake(bench.Postern, 80, &log)
	postern.Prepare = func(context.Context) error { prepared++; return nil }
	scenarios, err := Select(Scenarios(), []string{"wan-1ms-0%"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var progress []int
	g := Grid{
		Scenarios: scenarios,
		Subjects:  []bench.Subject{postern, fake(Reference, 100, &log)},
		Forwarder: []string{os.Args[0], pathArg},
		Options: bench.Options{Runs: 2, Duration: time.Second, Progress: func(p bench.Progress) {
			progress = append(progress, p.Done, p.Of)
		}},
	}
	report, err := g.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{bench.Postern, Reference, Reference, bench.Postern}; !slices.Equal(log, want) {
		t.Errorf("order of runs: got %v, want %v", log, want)
	}
	if want := []int{1, 4, 2, 4, 3, 4, 4, 4}; !slices.Equal(progress, want) {
		t.Errorf("progress: got %v, want %v", progress, want)
	}
	if prepared != 1 {
		t.Errorf("prepared %d times, want once", prepared)
	}
	for _, c := range report.Cells {
		if n, reason := c.Failures(); n > 0 || len(c.Runs) != 2 {
			t.Errorf("%s: %d runs, %d failed: %s", c.Subject, len(c.Runs), n, reason)
		}
	}
	var b strings.Builder
	if err := WriteTable(report, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"80.0 / 100.0  0.80 [0.80–0.80] !", "0 of 1 cells higher than tsnet, 1 lower than 0.9: 1ms-0%"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestAFailedRunIsToldOf(t *testing.T) {
	scenarios, err := Select(Scenarios(), []string{"wan-1ms-0%"}, []string{bench.Postern})
	if err != nil {
		t.Fatal(err)
	}
	g := Grid{
		Scenarios: scenarios, Forwarder: []string{os.Args[0], pathArg},
		Subjects: []bench.Subject{{Name: bench.Postern, Run: func(context.Context, load.Spec) (load.Result, error) {
			return load.Result{}, errors.New("nobody is at home")
		}}},
		Options: bench.Options{Runs: 1, Duration: time.Second},
	}
	report, err := g.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := WriteTable(report, &b); err != nil {
		t.Fatal(err)
	}
	if want := "wan-1ms-0% postern: 1 of 1 runs failed: nobody is at home"; !strings.Contains(b.String(), want) {
		t.Errorf("the table lacks %q:\n%s", want, b.String())
	}
}

func TestKeystrokesAreJudgedByIdleAndQueue(t *testing.T) {
	// 105 ms of queue and twice the idle 50 ms: 205 ms are allowed.
	for busy, want := range map[float64]string{0.200: "PASS: at most 205 allowed", 0.210: "FAIL: at most 205 allowed"} {
		r := &bench.Report{}
		for kind, p99 := range map[string]float64{kindKeysIdle: 0.050, kindKeysBusy: busy} {
			r.Cells = append(r.Cells, bench.Cell{Scenario: "wan-" + kind, Subject: bench.Postern, Runs: []bench.Run{
				{Result: &load.Result{Values: map[string]float64{load.UnitMedian: 0.040, load.UnitP99: p99}}},
			}})
		}
		var b strings.Builder
		if err := WriteTable(r, &b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("p99 of %g s: the table lacks %q:\n%s", busy, want, b.String())
		}
	}
}

func TestScenariosCoverTheGrid(t *testing.T) {
	var names []string
	for _, s := range Scenarios() {
		names = append(names, s.Name)
		if err := s.Path.check(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if s.Path.Loss == 0.01 && s.Runs < 9 {
			t.Errorf("%s: %d runs, want 9", s.Name, s.Runs)
		}
	}
	if len(names) != 14 || !slices.Contains(names, "wan-200ms-0.1%") || !slices.Contains(names, "wan-keys-busy") {
		t.Errorf("got %v, want 12 points and the keystrokes, idle and busy", names)
	}
	if _, err := Select(Scenarios(), []string{"wan-3ms-0%"}, nil); err == nil {
		t.Error("a scenario that is not there: got no error")
	}
}
