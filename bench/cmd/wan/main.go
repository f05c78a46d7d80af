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
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/cmd/internal/cmdline"
	"github.com/postern-dev/postern/bench/wan"
)

const (
	// childArg, followed by a spec, makes this program one run's process.
	childArg = "-run-subject"
	// pathArg, followed by a path, makes it the forwarder between a run's ends, until its
	// standard input ends.
	pathArg = "-serve-path"
)

func main() { cmdline.Main("wan", run) }

func run(ctx context.Context, args []string, s cmdline.Streams) error {
	if len(args) == 2 && args[0] == childArg {
		return bench.Own().Main(ctx, args[1], s.Out)
	}
	if len(args) == 2 && args[0] == pathArg {
		return wan.Serve(ctx, args[1], s.In, s.Out)
	}
	o, err := parse(args, s.Out)
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
	o.grid.Options.Progress = func(p bench.Progress) { fmt.Fprintln(s.Err, progressLine(p)) }
	report, err := o.grid.Run(ctx)
	if err != nil {
		return err
	}
	return o.write(report, s.Out)
}

// options are the command line.
type options struct {
	grid  wan.Grid
	write func(*bench.Report, io.Writer) error
	peers string
}

// parse reads the command line; help is where help goes that it asks for.
func parse(args []string, help io.Writer) (options, error) {
	var (
		o                   options
		scenarios, subjects cmdline.List
		format              string
	)
	f := flag.NewFlagSet("wan", flag.ContinueOnError)
	f.IntVar(&o.grid.Options.Runs, "runs", 0, "rounds; 0 means 3, and 9 with 1 % of loss")
	f.DurationVar(&o.grid.Options.Duration, "duration", 0, "measured part of a run; 0 means 10s, and 30s of keystrokes")
	f.DurationVar(&o.grid.Options.Warmup, "warmup", 0, "part of a run before it; 0 means 4s")
	f.StringVar(&format, "o", "table", "output `format`: table, json or benchstat")
	f.Var(&scenarios, "scenario", "only these `names`, separated by commas: wan-RTTms-LOSS%, wan-keys-idle, wan-keys-busy")
	f.Var(&subjects, "subject", "only the subjects of these `names`, separated by commas")
	f.StringVar(&o.grid.Options.ProfileDir, "profile", "", "write a CPU and a heap profile of each run into this `folder`")
	f.StringVar(&o.peers, "peers", "bench/peers", "`folder` of the modules with the peers for comparison")
	if err := cmdline.Parse(f, args, help); err != nil {
		return options{}, err
	}
	if o.grid.Options.Runs < 0 || o.grid.Options.Duration < 0 || o.grid.Options.Warmup < 0 {
		return options{}, cmdline.Usagef("leave out what is to be as usual", "-runs, -duration and -warmup cannot be negative")
	}
	switch format {
	case "table":
		o.write = wan.WriteTable
	case "json":
		o.write = (*bench.Report).WriteJSON
	case "benchstat":
		o.write = (*bench.Report).WriteBenchstat
	default:
		return options{}, cmdline.Usagef("there are: table, json, benchstat", "-o %q is not known", format)
	}
	var err error
	if o.grid.Scenarios, err = wan.Select(wan.Scenarios(), scenarios, subjects); err != nil {
		return options{}, cmdline.Usagef("-h says how scenarios are called, bench/README.md has the subjects", "%w", err)
	}
	return o, nil
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
