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

// fake is a subject whose two ends exchange one datagram through the forwarder.
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
	scenarios, err := Select(Scenarios(), []string{"wan-1ms-0%"}, nil, []string{bench.Postern, bench.Tsnet})
	if err != nil {
		t.Fatal(err)
	}
	var progress []int
	g := Grid{
		Scenarios: scenarios,
		Subjects:  []bench.Subject{postern, fake(bench.Tsnet, 100, &log)},
		Forwarder: []string{os.Args[0], pathArg},
		Options: bench.Options{Runs: 2, Duration: time.Second, Progress: func(p bench.Progress) {
			progress = append(progress, p.Done, p.Of)
		}},
	}
	report, err := g.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{bench.Postern, bench.Tsnet, bench.Tsnet, bench.Postern}; !slices.Equal(log, want) {
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
	if err := (View{report, bench.Tsnet}).WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1ms/0%  postern  80.0    –      –   0.80     0.80",
		"tsnet    100.0   –      –   –        –",
		"FAIL  1ms/0%: throughput over tsnet's  ≥ 0.9  0.80",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

// A saved report is shown unchanged, with the requested base.
func TestAReportIsReadAgain(t *testing.T) {
	cell := func(subject string, mbits ...float64) bench.Cell {
		c := bench.Cell{Scenario: "wan-100ms-1%", Subject: subject}
		for _, n := range mbits {
			c.Runs = append(c.Runs, bench.Run{Result: &load.Result{Bytes: uint64(n * 1e6 / 8), Seconds: 1}})
		}
		return c
	}
	saved := View{&bench.Report{Kind: bench.ReportKind, Version: bench.ReportVersion, Cells: []bench.Cell{
		cell(bench.Postern, 100, 60, 90), cell(bench.Tsnet, 1, 1, 1), cell(bench.WireGuardBBR, 100, 100, 100),
	}}, Base}
	var text strings.Builder
	if err := saved.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"base": "wireguard-tun-bbr"`, `"lowerQuartile": 0.75`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the JSON form lacks %s:\n%s", want, text.String())
		}
	}
	read, err := ReadReport(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := (View{read, bench.Tsnet}).WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"100ms/1%  postern            90.0    –      –   90.00    75.00",
		"PASS  100ms/1%: throughput over tsnet's              ≥ 20          90.00 [60.00–100.00]",
		"PASS  100ms/1%: throughput over wireguard-tun-bbr's  ≥ 0.9         0.90 [0.60–1.00]",
		"PASS  100ms/1%: throughput over wireguard-tun-bbr's  ≥ 0.5 at p25  0.75 of 0.90 [0.60–1.00]",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestAFailedRunIsToldOf(t *testing.T) {
	scenarios, err := Select(Scenarios(), []string{"wan-1ms-0%"}, nil, []string{bench.Postern})
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
	if err := (View{report, bench.Tsnet}).WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if want := "wan-1ms-0% postern: 1 of 1 runs failed: nobody is at home"; !strings.Contains(b.String(), want) {
		t.Errorf("the table lacks %q:\n%s", want, b.String())
	}
}

func TestKeystrokesAreJudgedByIdleAndQueue(t *testing.T) {
	// 105 ms of queue and twice the idle 50 ms allow 205 ms.
	for busy, want := range map[float64]string{0.200: "PASS: at most 205 allowed", 0.210: "FAIL: at most 205 allowed"} {
		r := &bench.Report{}
		for cell, p99 := range map[string]float64{cellKeysIdle: 0.050, cellKeysBusy: busy} {
			r.Cells = append(r.Cells, bench.Cell{Scenario: scenarioName(cell), Subject: bench.Postern, Runs: []bench.Run{
				{Result: &load.Result{Values: map[string]float64{load.UnitMedian: 0.040, load.UnitP99: p99}}},
			}})
		}
		var b strings.Builder
		if err := (View{r, Base}).WriteTable(&b); err != nil {
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
	for _, want := range []string{
		"wan-1ms-0%", "wan-200ms-0.1%", "wan-100ms-3%", "wan-keys-idle", "wan-keys-busy", "wan-control-idle", "wan-control-busy", "wan-20ms-bursts", "wan-200ms-jitter-lossy",
		"wan-100ms-reorder", "wan-100ms-policer", "wan-lte-down", "wan-geo-up", "wan-leo-down",
		"wan-duel-alone-4ms", "wan-duel-streams-400ms", "wan-duel-self-40ms", "wan-duel-cubic-105ms", "wan-duel-bbr-15ms",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no %s among %v", want, names)
		}
	}
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) {
		t.Errorf("two scenarios have one name: %v", names)
	}
	if _, err := Select(Scenarios(), []string{"wan-3ms-0%"}, nil, nil); err == nil {
		t.Error("unknown scenario: got no error")
	}
}

func TestCellsAreSelectedByPatterns(t *testing.T) {
	for pattern, want := range map[string]int{
		"100ms/1%": 1, "*ms/1%": 4, "100ms/*%": 4, "100ms": 10, "*ms/jitter*": 6, "lte": 2, "keys/busy": 1, "duel/cubic": 5, "duel/*/40ms": 5, "duel": 25,
	} {
		got, err := Select(Scenarios(), nil, []string{pattern}, []string{bench.Postern})
		if err != nil || len(got) != want {
			t.Errorf("%q: got %d cells and %v, want %d", pattern, len(got), err, want)
		}
	}
	for _, pattern := range []string{"0ms/1%", "ms", "[", ""} {
		if got, err := Select(Scenarios(), nil, []string{pattern}, nil); err == nil {
			t.Errorf("%q: got %d cells, want an error", pattern, len(got))
		}
	}
}

func TestTheKernelDuelsWhenItIsNamed(t *testing.T) {
	for subject, want := range map[string][]string{"": {bench.Postern, bench.PosternBefore}, bench.WireGuardBBR: {bench.WireGuardBBR}} {
		var subjects []string
		if subject != "" {
			subjects = append(subjects, subject)
		}
		got, err := Select(Scenarios(), nil, []string{"duel/cubic/40ms"}, subjects)
		if err != nil || len(got) != 1 || !slices.Equal(got[0].Subjects, want) {
			t.Errorf("subject %q: got %+v and %v, want %v", subject, got, err, want)
		}
	}
}

// Each requirement is about existing cells and their subjects.
func TestRequirementsAreOfCells(t *testing.T) {
	for _, q := range Requirements() {
		for _, c := range []bench.CellName{q.Of, q.To} {
			if c != (bench.CellName{}) && !slices.ContainsFunc(Scenarios(), func(s Scenario) bool {
				return s.Name == c.Scenario && slices.Contains(s.Subjects, c.Subject)
			}) {
				t.Errorf("%s: no cell %+v", q.Name, c)
			}
		}
	}
}

// flow is a subject whose dialling end sends datagrams to the other one during the window.
func flow(name string, bytes uint64, began chan<- string) bench.Subject {
	return bench.Subject{Name: name, Run: func(ctx context.Context, spec load.Spec) (load.Result, error) {
		began <- spec.Subject
		var ends [2]net.Conn
		for i := range ends {
			c, err := new(net.Dialer).DialContext(ctx, "udp4", spec.Via)
			if err != nil {
				return load.Result{}, err
			}
			defer c.Close()
			if _, err := c.Write([]byte("hello")); err != nil {
				return load.Result{}, err
			}
			ends[i] = c
		}
		from := ends[0]
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for end := spec.From.Add(spec.Duration); time.Now().Before(end); {
			<-tick.C
			for range 16 { // at once: more than the queue holds, however late this process is
				if _, err := from.Write(make([]byte, 1000-headers)); err != nil {
					return load.Result{}, err
				}
			}
		}
		return load.Result{Bytes: bytes, StreamBytes: []uint64{bytes}, Seconds: spec.Duration.Seconds()}, nil
	}}
}

// duelOf returns a grid of one short duel.
func duelOf(subject, rival bench.Subject) *Grid {
	s := named("duel/test/10ms", "A duel", subject.Name)
	s.Subjects = []string{subject.Name}
	s.Path = Path{RTT: time.Millisecond, Rate: 4e6, Queue: 10 * time.Millisecond}
	s.duel = &duel{rival.Name, 200 * time.Millisecond, 200 * time.Millisecond}
	return &Grid{
		Scenarios: []Scenario{s}, Subjects: []bench.Subject{subject, rival}, Forwarder: []string{os.Args[0], pathArg},
		Options: bench.Options{Runs: 2, Warmup: time.Millisecond, Duration: 500 * time.Millisecond},
	}
}

func TestADuelTellsHowTwoTunnelsShare(t *testing.T) {
	for end := time.Now().Add(patience); ; {
		drops, use := shared(t)
		if drops > 0 && drops < 1 && use > 0 && use <= 1.2 {
			return
		}
		// A busy machine may leave this process alone for as long as a window.
		if time.Now().After(end) {
			t.Fatalf("%g of the packets dropped, %g of the rate used", drops, use)
		}
	}
}

// shared makes two runs of a duel, and returns what they tell of the path, on average.
func shared(t *testing.T) (drops, use float64) {
	t.Helper()
	began := make(chan string, 4)
	report, err := duelOf(flow("a", 300, began), flow("b", 100, began)).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, reason := report.Cells[0].Failures(); n > 0 {
		t.Fatal(reason)
	}
	var order []string
	for range 4 {
		order = append(order, <-began)
	}
	if want := []string{"b", "a", "a", "b"}; !slices.Equal(order, want) {
		t.Errorf("order of starts: got %v, want alternating head starts: %v", order, want)
	}
	for _, run := range report.Cells[0].Runs {
		v := run.Result.Values
		if v[unitShare] != 0.75 || v[unitJain] != 0.8 { // 400²/(2·(300²+100²))
			t.Errorf("share %g, Jain's index %g; want 0.75 and 0.8", v[unitShare], v[unitJain])
		}
		drops, use = drops+v[unitDrops]/2, use+v[unitUse]/2
	}
	return drops, use
}

func TestTheBottleneckIsMeasuredInItsWindow(t *testing.T) {
	traffic := func(a, b Counters) Traffic { return Traffic{Tunnels: []TunnelTraffic{{Forward: a}, {Forward: b}}} }
	const size = 1000 - headers
	got := bottleneck(Path{Rate: 4e6}, 500*time.Millisecond,
		traffic(Counters{Forwarded: 7, Bytes: 7 * size, Overflow: 2}, Counters{Forwarded: 9, Bytes: 9 * size, Overflow: 9}),
		traffic(Counters{Forwarded: 67, Bytes: 67 * size, Lost: 10, Policed: 5, Overflow: 27}, Counters{Forwarded: 109, Bytes: 109 * size, Overflow: 99}))
	// The subject's: 25 of 100. All: 160 packets of 1,000 bytes, 2.56 Mbit/s.
	if got[unitDrops] != 0.25 || got[unitUse] != 0.64 {
		t.Errorf("%g of the packets dropped, %g of the rate used; want 0.25 and 0.64", got[unitDrops], got[unitUse])
	}
}

func TestADuelWithoutItsRivalSaysWhy(t *testing.T) {
	g := duelOf(flow("a", 1, make(chan string, 1)), bench.Subject{
		Name: "b", Prepare: func(context.Context) error { return errors.New("no BBR here") },
	})
	g.Options.Runs = 1
	report, err := g.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, reason := report.Cells[0].Failures(); reason != "no BBR here" {
		t.Errorf("got %q, want the rival's reason", reason)
	}
}
