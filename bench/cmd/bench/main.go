// Command bench compares postern with what a user could use instead, in one run on this host. The
// README of package bench explains its output.
//
//	go run ./bench/cmd/bench [flags]
//
// It builds the peers for comparison from the module in bench/peers. So it must run in the
// repository's root, or with -peers, and needs the go command in PATH.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/cmd/internal/cmdline"
)

const (
	// childArg, followed by a spec, makes this program the process of a run.
	childArg = "-run-subject"
	// relayArg, followed by an address, makes it the TURN server of a run, until its standard
	// input ends.
	relayArg = "-serve-relay"
)

// errRequired is returned with -require if a required ratio is not met.
var errRequired = errors.New("a required ratio is not met")

func main() { cmdline.Main("bench", run) }

func run(ctx context.Context, args []string, s cmdline.Streams) error {
	if len(args) == 2 && args[0] == childArg {
		return bench.Own().Main(ctx, args[1], s.Out)
	}
	if len(args) == 2 && args[0] == relayArg {
		return bench.ServeRelay(args[1], s.In)
	}
	o, err := parse(args, s.Out)
	if err != nil {
		return err
	}
	report, err := o.report(ctx, s.Err)
	if err != nil {
		return err
	}
	if err := o.write(report, s.Out); err != nil {
		return err
	}
	if !o.require {
		return nil
	}
	for _, outcome := range bench.Judge(report, bench.Requirements()) {
		if outcome.Verdict != bench.Pass {
			return fmt.Errorf("%w: %s: %s", errRequired, outcome.Name, outcome.Verdict)
		}
	}
	return nil
}

// report runs the benchmarks, or reads the report of an earlier run.
func (o options) report(ctx context.Context, stderr io.Writer) (*bench.Report, error) {
	if o.read != "" {
		return read(o.read)
	}
	report, err := o.measure(ctx, stderr)
	if err != nil || o.save == "" {
		return report, err
	}
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err != nil {
		return nil, err
	}
	if err := os.WriteFile(o.save, text.Bytes(), 0o644); err != nil {
		return nil, fmt.Errorf("save report: %w", err)
	}
	return report, nil
}

func read(file string) (*bench.Report, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	defer f.Close()
	return bench.ReadReport(f)
}

// measure makes the runs.
func (o options) measure(ctx context.Context, stderr io.Writer) (*bench.Report, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "postern-bench-")
	if err != nil {
		return nil, fmt.Errorf("make folder for programs: %w", err)
	}
	defer os.RemoveAll(dir)
	if o.runner.ProfileDir != "" {
		if err := os.MkdirAll(o.runner.ProfileDir, 0o755); err != nil {
			return nil, fmt.Errorf("make folder for profiles: %w", err)
		}
	}
	o.runner.Progress = func(p bench.Progress) { fmt.Fprintln(stderr, p) }
	runner := bench.Runner{
		Scenarios: o.scenarios,
		Subjects: bench.Subjects(bench.Programs{
			Self: []string{self, childArg}, Relay: []string{self, relayArg}, Postern: o.postern, Peers: o.peers, Dir: dir,
		}),
		Options: o.runner,
	}
	return runner.Run(ctx)
}

// options are the parsed command line.
type options struct {
	runner    bench.Options
	scenarios []bench.Scenario
	write     func(*bench.Report, io.Writer) error
	require   bool
	// The file of the postern program, and the folder of the peers' modules.
	postern, peers string
	// The files to save the report to, and to read one from instead of measuring.
	save, read string
}

// parse parses the command line. Help, if requested, is written to help.
func parse(args []string, help io.Writer) (options, error) {
	var (
		o                   options
		scenarios, subjects cmdline.List
		format              string
	)
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.runner.Runs, "runs", 6, "rounds; each makes one run of every scenario and subject")
	f.DurationVar(&o.runner.Duration, "duration", 3*time.Second, "measured part of a run")
	f.DurationVar(&o.runner.Warmup, "warmup", time.Second, "part of a run before it")
	f.StringVar(&format, "o", "table", "output `format`: table, chart, json or benchstat")
	f.StringVar(&o.save, "save", "", "write the report as JSON into this `file`, too")
	f.StringVar(&o.read, "read", "", "measure nothing: show the report in this `file`; -o and -require alone go with it")
	f.Var(&scenarios, "scenario", "only these `names`, separated by commas: "+bench.AllScenarios+", or of "+names(bench.Scenarios()))
	f.Var(&subjects, "subject", "only the subjects of these `names`, separated by commas")
	f.StringVar(&o.runner.ProfileDir, "profile", "", "write a CPU and a heap profile of each run into this `folder`")
	f.StringVar(&o.peers, "peers", "bench/peers", "`folder` of the modules with the peers for comparison")
	f.StringVar(&o.postern, "postern", "bin/postern", "`file` of the postern program, for subjects that run it")
	f.BoolVar(&o.require, "require", false, "exit 1 unless every required ratio is met")
	if err := cmdline.Parse(f, args, help); err != nil {
		return options{}, err
	}
	if o.read != "" {
		if err := onlyShows(f); err != nil {
			return options{}, err
		}
	}
	switch {
	case o.runner.Runs < 1:
		return options{}, cmdline.Usagef("for example -runs 6", "-runs %d measures nothing", o.runner.Runs)
	case o.runner.Duration <= 0 || o.runner.Warmup < 0:
		return options{}, cmdline.Usagef("for example -duration 3s -warmup 1s", "-duration %s after -warmup %s measures nothing", o.runner.Duration, o.runner.Warmup)
	}
	switch format {
	case "table":
		o.write = (*bench.Report).WriteTable
	case "chart":
		o.write = func(r *bench.Report, w io.Writer) error { return r.WriteChart(w, chartWidth(w)) }
	case "json":
		o.write = (*bench.Report).WriteJSON
	case "benchstat":
		o.write = (*bench.Report).WriteBenchstat
	default:
		return options{}, cmdline.Usagef("there are: table, chart, json, benchstat", "-o %q is not known", format)
	}
	var err error
	if o.scenarios, err = bench.Select(bench.Scenarios(), scenarios, subjects); err != nil {
		return options{}, cmdline.Usagef("-h names the scenarios, bench/README.md the subjects, too", "%w", err)
	}
	return o, nil
}

// showing are the flags that can be used with -read.
var showing = []string{"read", "o", "require"}

// onlyShows refuses flags that configure a measurement.
func onlyShows(given *flag.FlagSet) (err error) {
	given.Visit(func(g *flag.Flag) {
		if err == nil && !slices.Contains(showing, g.Name) {
			err = cmdline.Usagef("leave out -"+g.Name+", or -read", "-%s: -read shows a report as it is, and measures nothing", g.Name)
		}
	})
	return err
}

// chartWidth returns the terminal's width, or the default if w is not a terminal.
func chartWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return bench.DefaultChart
}

func names(scenarios []bench.Scenario) string {
	var out []string
	for _, s := range scenarios {
		out = append(out, s.Name)
	}
	return strings.Join(out, ", ")
}
