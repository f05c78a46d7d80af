// Command wan measures postern and its reference over paths of the internet: bulk TCP in a
// grid of round-trip times and losses, and keystrokes; see the README of package bench.
//
//	go run ./bench/cmd/wan [flags]
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

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/wan"
)

const (
	// childArg, followed by a spec, makes this program one run's process.
	childArg = "-run-subject"
	// pathArg, followed by a path, makes it the forwarder between a run's ends, until its
	// standard input ends.
	pathArg = "-serve-path"
)

// errUsage ends the program with exit code 2.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errUsage):
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "wan:", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 2 && args[0] == childArg {
		return bench.Own().Main(ctx, args[1], stdout)
	}
	if len(args) == 2 && args[0] == pathArg {
		return wan.Serve(ctx, args[1], stdin, stdout)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "postern-wan-")
	if err != nil {
		return fmt.Errorf("make folder for programs: %w", err)
	}
	defer os.RemoveAll(dir)
	if o.grid.Options.ProfileDir != "" {
		if err := os.MkdirAll(o.grid.Options.ProfileDir, 0o755); err != nil {
			return fmt.Errorf("make folder for profiles: %w", err)
		}
	}
	o.grid.Subjects = bench.Subjects(bench.Programs{Self: []string{self, childArg}, Peers: o.peers, Dir: dir})
	o.grid.Forwarder = []string{self, pathArg}
	o.grid.Options.Progress = func(p bench.Progress) { fmt.Fprintln(stderr, progressLine(p)) }
	report, err := o.grid.Run(ctx)
	if err != nil {
		return err
	}
	return o.write(report, stdout)
}

// options are the command line.
type options struct {
	grid  wan.Grid
	write func(*bench.Report, io.Writer) error
	peers string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var (
		o                         options
		scenario, subject, format string
	)
	f := flag.NewFlagSet("wan", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.grid.Options.Runs, "runs", 0, "rounds; 0 means 3, and 9 with 1 % of loss")
	f.DurationVar(&o.grid.Options.Duration, "duration", 0, "measured part of a run; 0 means 10s, and 30s of keystrokes")
	f.DurationVar(&o.grid.Options.Warmup, "warmup", 0, "part of a run before it; 0 means 4s")
	f.StringVar(&format, "o", "table", "output: table, json or benchstat")
	f.StringVar(&scenario, "scenario", "", "only these, separated by commas: wan-RTTms-LOSS%, wan-keys-idle, wan-keys-busy")
	f.StringVar(&subject, "subject", "", "only these subjects, separated by commas")
	f.StringVar(&o.grid.Options.ProfileDir, "profile", "", "write a CPU and a heap profile of each run into this folder")
	f.StringVar(&o.peers, "peers", "bench/peers", "folder of the module with the peers for comparison")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return options{}, err
		}
		return options{}, errUsage // The flag set has said what is wrong.
	}
	bad := func(format string, a ...any) (options, error) {
		fmt.Fprintf(stderr, "wan: "+format+"\n", a...)
		return options{}, errUsage
	}
	if f.NArg() > 0 {
		return bad("unexpected argument %q", f.Arg(0))
	}
	if o.grid.Options.Runs < 0 || o.grid.Options.Duration < 0 || o.grid.Options.Warmup < 0 {
		return bad("-runs, -duration and -warmup cannot be negative")
	}
	switch format {
	case "table":
		o.write = wan.WriteTable
	case "json":
		o.write = (*bench.Report).WriteJSON
	case "benchstat":
		o.write = (*bench.Report).WriteBenchstat
	default:
		return bad("-o %q: want table, json or benchstat", format)
	}
	var err error
	if o.grid.Scenarios, err = wan.Select(wan.Scenarios(), list(scenario), list(subject)); err != nil {
		return bad("%v", err)
	}
	return o, nil
}

// list splits at commas; of nothing it makes nothing.
func list(s string) []string {
	return slices.DeleteFunc(strings.Split(s, ","), func(s string) bool { return s == "" })
}

// progressLine is what is said of a run when it ends.
func progressLine(p bench.Progress) string {
	head := fmt.Sprintf("[%d/%d] %s %s", p.Done, p.Of, p.Scenario, p.Subject)
	if p.Run.Result == nil {
		return head + ": failed: " + p.Run.Error
	}
	r := p.Run.Result
	return fmt.Sprintf("%s: %.1f Mbit/s, %.2f cores, %d MB", head, r.BitsPerSecond()/1e6, r.Cores(), r.PeakRSS/1e6)
}
