// Command bench measures postern against what a user could pick instead, in one run on
// this machine; see the README of package bench for how to read what it prints.
//
//	go run ./bench/cmd/bench [flags]
//
// It builds the peers for comparison from the module in bench/peers, so it wants the
// repository's root as working directory, or -peers, and the go command in PATH.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/wan"
)

const (
	// childArg, followed by a spec, makes this program one run's process.
	childArg = "-run-subject"
	// relayArg, followed by an address, makes it the TURN server beside a run, until its
	// standard input ends.
	relayArg = "-serve-relay"
	// pathArg, followed by a path, makes it the forwarder between a run's ends, until its
	// standard input ends.
	pathArg = "-serve-path"
)

// errRequired says that -require was given and a ratio is not met.
var errRequired = errors.New("a required ratio is not met")

// errUsage ends the program with exit code 2.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errUsage):
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 2 && args[0] == childArg {
		return bench.Own().Main(ctx, args[1], stdout)
	}
	if len(args) == 2 && args[0] == relayArg {
		return bench.ServeRelay(args[1], os.Stdin)
	}
	if len(args) == 2 && args[0] == pathArg {
		return wan.Serve(ctx, args[1], os.Stdin, stdout)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "postern-bench-")
	if err != nil {
		return fmt.Errorf("make folder for programs: %w", err)
	}
	defer os.RemoveAll(dir)
	if o.runner.ProfileDir != "" {
		if err := os.MkdirAll(o.runner.ProfileDir, 0o755); err != nil {
			return fmt.Errorf("make folder for profiles: %w", err)
		}
	}
	o.runner.Progress = func(p bench.Progress) { fmt.Fprintln(stderr, progressLine(p)) }
	runner := bench.Runner{
		Scenarios: o.scenarios,
		Subjects: bench.Subjects(bench.Programs{
			Self: []string{self, childArg}, Relay: []string{self, relayArg}, Peers: o.peers, Dir: dir,
		}),
		Options: o.runner,
	}
	report, err := runner.Run(ctx)
	if err != nil {
		return err
	}
	if err := o.write(report, stdout); err != nil {
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

// options are the command line.
type options struct {
	runner    bench.Options
	scenarios []bench.Scenario
	write     func(*bench.Report, io.Writer) error
	require   bool
	peers     string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var (
		o                 options
		scenario, subject string
		format            string
	)
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.runner.Runs, "runs", 6, "rounds; each makes one run of every scenario and subject")
	f.DurationVar(&o.runner.Duration, "duration", 3*time.Second, "measured part of a run")
	f.DurationVar(&o.runner.Warmup, "warmup", time.Second, "part of a run before it")
	f.StringVar(&format, "o", "table", "output: table, json or benchstat")
	f.StringVar(&scenario, "scenario", "", "only these, separated by commas: "+names(bench.Scenarios()))
	f.StringVar(&subject, "subject", "", "only these subjects, separated by commas")
	f.StringVar(&o.runner.ProfileDir, "profile", "", "write a CPU and a heap profile of each run into this folder")
	f.StringVar(&o.peers, "peers", "bench/peers", "folder of the module with the peers for comparison")
	f.BoolVar(&o.require, "require", false, "exit 1 unless every required ratio is met")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return options{}, err
		}
		return options{}, errUsage // The flag set has said what is wrong.
	}
	bad := func(format string, a ...any) (options, error) {
		fmt.Fprintf(stderr, "bench: "+format+"\n", a...)
		return options{}, errUsage
	}
	if f.NArg() > 0 {
		return bad("unexpected argument %q", f.Arg(0))
	}
	switch format {
	case "table":
		o.write = (*bench.Report).WriteTable
	case "json":
		o.write = (*bench.Report).WriteJSON
	case "benchstat":
		o.write = (*bench.Report).WriteBenchstat
	default:
		return bad("-o %q: want table, json or benchstat", format)
	}
	var err error
	if o.scenarios, err = bench.Select(bench.Scenarios(), list(scenario), list(subject)); err != nil {
		return bad("%v", err)
	}
	return o, nil
}

// list splits at commas; of nothing it makes nothing.
func list(s string) []string {
	return slices.DeleteFunc(strings.Split(s, ","), func(s string) bool { return s == "" })
}

func names(scenarios []bench.Scenario) string {
	var out []string
	for _, s := range scenarios {
		out = append(out, s.Name)
	}
	return strings.Join(out, ", ")
}

// progressLine is what is said of a run when it ends.
func progressLine(p bench.Progress) string {
	head := fmt.Sprintf("[%d/%d] %s %s", p.Done, p.Of, p.Scenario, p.Subject)
	if p.Run.Result == nil {
		return head + ": failed: " + p.Run.Error
	}
	r := p.Run.Result
	return fmt.Sprintf("%s: %.2f Gbit/s, %.2f cores, %d MB", head, r.BitsPerSecond()/1e9, r.Cores(), r.PeakRSS/1e6)
}
