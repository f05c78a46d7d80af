package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/tui"
)

const (
	formatBenchstat = "benchstat"
	formatChart     = "chart"
)

// Defaults of `bench run`.
const (
	benchRuns     = 4               // even, because every other round is in reverse order
	benchDuration = 3 * time.Second // 150 requests of the scenario small: enough for a 99th percentile
	benchWarmup   = time.Second
)

// benchFlags are the flags of `bench run`.
type benchFlags struct {
	scenarios, subjects []string
	runs                int
	duration, warmup    time.Duration
	cpus                float64
	memory, format      string
	peer                string
	list                bool
}

func (a *app) benchCommand() *cobra.Command {
	run := a.benchRunCommand()
	a.reaching(run) // bench run --peer uses a gateway
	return group("bench", "Measure the performance of this machine or of a peering", run, a.benchCompareCommand())
}

func (a *app) benchRunCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "Measure two gateways on this machine or, with --peer, a live peering",
		Long: "Run tunnels with both ends on this machine, each run in separate processes, and show medians and their " +
			"spread. Compare ratios within one report only: absolute figures change with the machine and the hour. " +
			"--cpus and --memory put every run, or each of two gateways, into a control group (needs root). The " +
			"exceptions are subjects with their own limits: " + strings.Join([]string{bench.Postern64MiB, bench.PosternSmall, bench.PosternRoomy}, ", ") +
			". This binary does not contain the programs that `make bench` compares " +
			"postern with.\n\n" +
			"With --peer NAME no gateway is started: the running gateway measures its peering with NAME, and first " +
			"says how much it will send. The work of each round is then fixed, so --duration, --warmup and the flags " +
			"that select or limit local runs are refused.",
		Example: "  postern bench run --scenario binary-tcp-1,small -o json >today.json\n  postern bench run --cpus 0.5 --memory 64MiB\n  postern bench run --peer cloud",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.peer != "" {
				if err := f.forPeer(c.Flags().Changed); err != nil {
					return err
				}
			}
			write, err := f.check(a.width())
			if err != nil {
				return err
			}
			switch {
			case f.list:
				return a.listBenchmarks()
			case f.peer != "":
				return a.benchPeer(c.Context(), f, write)
			}
			return a.benchRun(c.Context(), f, write)
		},
	}
	fl := c.Flags()
	fl.StringSliceVar(&f.scenarios, "scenario", nil, "only these `scenarios` (--list shows them)")
	fl.StringSliceVar(&f.subjects, "subject", nil, "only these `subjects`")
	fl.IntVar(&f.runs, "runs", benchRuns, "number of rounds; each runs everything once")
	fl.Lookup("runs").DefValue = fmt.Sprintf("%d, with --peer %d", benchRuns, peerRuns) // shown in help
	fl.DurationVar(&f.duration, "duration", benchDuration, "length of the measured part of a run; not with --peer")
	fl.DurationVar(&f.warmup, "warmup", benchWarmup, "length of the unmeasured part before it; not with --peer")
	fl.Float64Var(&f.cpus, "cpus", 0, "CPU time a gateway or a run may use, in `cores`, unless its subject has its own limits (default no limit)")
	fl.StringVar(&f.memory, "memory", "", "memory a gateway or a run may use, a `size` such as 64MiB, unless its subject has its own limits (default no limit)")
	fl.StringVar(&f.peer, "peer", "", "measure the peering with this peer")
	fl.BoolVar(&f.list, "list", false, "list the scenarios and their subjects")
	outputFlag(c, &f.format, formatTable, formatChart, formatJSON, formatBenchstat)
	complete(c, "scenario", listed(benchmarkNames, cobra.ShellCompDirectiveNoFileComp))
	complete(c, "peer", a.completePeer)
	return c
}

// reportWriter writes a report in a format.
type reportWriter = func(*bench.Report, io.Writer) error

// check checks the flags and returns the format's writer; width is the terminal's.
func (f benchFlags) check(width int) (reportWriter, error) {
	switch {
	case f.runs < 1:
		return nil, usagef("for example --runs 4", "--runs %d measures nothing", f.runs)
	case f.duration <= 0 || f.warmup < 0:
		return nil, usagef("for example --duration 2s --warmup 1s", "--duration %s after --warmup %s measures nothing", f.duration, f.warmup)
	}
	if _, err := f.limits(); err != nil {
		return nil, err
	}
	switch f.format {
	case formatJSON:
		return (*bench.Report).WriteJSON, nil
	case formatBenchstat:
		return (*bench.Report).WriteBenchstat, nil
	case formatChart:
		if width == 0 { // there is no terminal
			width = bench.DefaultChart
		}
		return func(r *bench.Report, w io.Writer) error { return r.WriteChart(w, width) }, nil
	}
	return (*bench.Report).WriteTable, nil
}

// limits returns the limits of each gateway, or run.
func (f benchFlags) limits() (limits.Limits, error) {
	l := limits.Limits{CPUs: f.cpus}
	if f.memory != "" {
		var err error
		if l.Memory, err = limits.ParseMemory(f.memory); err != nil {
			return l, usagef("", "--memory: %w", err)
		}
	}
	if err := l.Check(); err != nil {
		return l, usagef("", "--cpus and --memory: %w", err)
	}
	return l, nil
}

// benchRun runs everything in child processes.
func (a *app) benchRun(ctx context.Context, f benchFlags, write reportWriter) error {
	scenarios, err := bench.Select(bench.Scenarios(), f.scenarios, f.subjects)
	if err != nil {
		return usagef("postern bench run --list shows all", "bench: %w", err)
	}
	l, err := f.limits()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("bench: find this program: %w", err)
	}
	defer a.tidies()()
	dir, err := os.MkdirTemp("", "postern-bench-")
	if err != nil {
		return fmt.Errorf("bench: make a folder for the runs: %w", err)
	}
	defer os.RemoveAll(dir)
	part := func(kind string) []string { return []string{self, partSubcommand, "--dir", dir, kind} }
	runner := bench.Runner{
		Scenarios: scenarios,
		Subjects: bench.Subjects(bench.Programs{
			Self: part(partRun), Relay: part(partRelay), Postern: self, Dir: dir,
		}),
		Options: bench.Options{Runs: f.runs, Duration: f.duration, Warmup: f.warmup, Limits: l, Progress: a.benchProgress},
	}
	if l.Any() && !runner.Limitable() {
		return usagef("leave out --cpus and --memory, or choose subjects without, such as "+bench.PosternBinary,
			"%s limits nothing: every chosen subject has its own limits", l)
	}
	report, err := runner.Run(ctx)
	if err != nil {
		return err
	}
	if err := write(report, a.stdout); err != nil {
		return err
	}
	return benchFailure(report)
}

// benchProgress reports each run when it ends.
func (a *app) benchProgress(p bench.Progress) { fmt.Fprintln(a.stderr, tui.Printable(p.String())) }

// benchFailure returns an error if nothing was measured.
func benchFailure(r *bench.Report) error {
	reason := "nothing was run"
	for _, c := range r.Cells {
		n, why := c.Failures()
		if n < len(c.Runs) {
			return nil
		}
		reason = fmt.Sprintf("%s %s: %s", c.Scenario, c.Subject, why)
	}
	return failedf("", "bench: no run succeeded: %s", reason)
}

func benchmarkNames() []string {
	var out []string
	for _, s := range bench.Scenarios() {
		out = append(out, s.Name)
	}
	return out
}

// listBenchmarks shows scenarios with their subjects.
func (a *app) listBenchmarks() error {
	for _, s := range bench.Scenarios() {
		if _, err := fmt.Fprintf(a.stdout, "%-20s %s\n%-20s   %s\n", s.Name, s.Title, "", strings.Join(s.Subjects, ", ")); err != nil {
			return err
		}
	}
	return nil
}
