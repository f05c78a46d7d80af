// Command wan measures postern and the peers for comparison over internet paths: bulk TCP in a
// grid of round-trip times and losses and over worse paths, keystrokes, and flows that share a
// bottleneck. See the README of package bench.
//
//	go run ./bench/cmd/wan [flags]
//
// It builds the peers for comparison from the module in bench/peers. So it must run in the
// repository's root, or with -peers, and needs the go command in PATH.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/cmd/internal/cmdline"
	"github.com/postern-dev/postern/bench/wan"
)

const (
	// childArg, followed by a spec, makes this program the process of a run.
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
	report, err := o.report(ctx, s.Err)
	if err != nil {
		return err
	}
	return o.write(wan.View{Report: report, Base: o.base}, s.Out)
}

// report runs the benchmarks, or reads the report of an earlier run.
func (o options) report(ctx context.Context, stderr io.Writer) (*bench.Report, error) {
	if o.read != "" {
		f, err := os.Open(o.read)
		if err != nil {
			return nil, fmt.Errorf("read report: %w", err)
		}
		defer f.Close()
		return wan.ReadReport(f)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "postern-wan-")
	if err != nil {
		return nil, fmt.Errorf("make folder for programs: %w", err)
	}
	defer os.RemoveAll(dir)
	if o.grid.Options.ProfileDir != "" {
		if err := os.MkdirAll(o.grid.Options.ProfileDir, 0o755); err != nil {
			return nil, fmt.Errorf("make folder for profiles: %w", err)
		}
	}
	programs := bench.Programs{Self: []string{self, childArg}, Peers: o.peers, Dir: dir}
	if o.before != "" {
		programs.Before = []string{o.before, childArg}
	}
	o.grid.Subjects = bench.Subjects(programs)
	o.grid.Forwarder = []string{self, pathArg}
	o.grid.Options.Progress = func(p bench.Progress) { fmt.Fprintln(stderr, p) }
	return o.grid.Run(ctx)
}

// options are the parsed command line.
type options struct {
	grid                      wan.Grid
	write                     func(wan.View, io.Writer) error
	peers, before, base, read string
}

// parse parses the command line. Help, if requested, is written to help.
func parse(args []string, help io.Writer) (options, error) {
	var (
		o                             options
		scenarios, patterns, subjects cmdline.List
		format                        string
	)
	f := flag.NewFlagSet("wan", flag.ContinueOnError)
	f.IntVar(&o.grid.Options.Runs, "runs", 0, "rounds; 0 means 3, 4 of duels, and 9 with 1 % of loss and more")
	f.DurationVar(&o.grid.Options.Duration, "duration", 0, "measured part of a run; 0 means 10s, 25s with 1 % of loss, 30s of keystrokes and 45s of duels")
	f.DurationVar(&o.grid.Options.Warmup, "warmup", 0, "part of a run before it; 0 means 4s, and 15s of duels")
	f.StringVar(&format, "o", "table", "output `format`: table, json or benchstat")
	f.Var(&patterns, "cells", "only the cells that match one of these `patterns`, separated by commas: 100ms/1%, '*ms/bursts', keys, duel/cubic")
	f.Var(&scenarios, "scenario", "only these `names`, separated by commas: those of cells, such as wan-100ms-1% and wan-keys-idle")
	f.Var(&subjects, "subject", "only the subjects of these `names`, separated by commas")
	f.StringVar(&o.base, "base", wan.Base, "ratios are to the subject of this `name`")
	f.StringVar(&o.before, "before", "", "the subject postern-before is this `program`: wan, built of another commit")
	f.StringVar(&o.read, "read", "", "measure nothing: show the JSON report in this `file`")
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
		o.write = wan.View.WriteTable
	case "json":
		o.write = wan.View.WriteJSON
	case "benchstat":
		o.write = func(v wan.View, w io.Writer) error { return v.WriteBenchstat(w) }
	default:
		return options{}, cmdline.Usagef("there are: table, json, benchstat", "-o %q is not known", format)
	}
	all := wan.Scenarios()
	if !slices.ContainsFunc(all, func(s wan.Scenario) bool { return slices.Contains(s.Subjects, o.base) }) {
		return options{}, cmdline.Usagef("bench/README.md has the subjects", "-base %q is no subject", o.base)
	}
	if o.read != "" {
		var beside []string
		f.Visit(func(one *flag.Flag) {
			if !slices.Contains([]string{"read", "o", "base"}, one.Name) {
				beside = append(beside, "-"+one.Name)
			}
		})
		if len(beside) > 0 {
			return options{}, cmdline.Usagef("-o and -base say how a report is shown", "%s makes no sense with -read", strings.Join(beside, ", "))
		}
		return o, nil
	}
	if o.before == "" {
		all = wan.Without(all, bench.PosternBefore)
	}
	var err error
	if o.grid.Scenarios, err = wan.Select(all, scenarios, patterns, subjects); err != nil {
		return options{}, cmdline.Usagef("-h says how scenarios are called, bench/README.md has the subjects", "%w", err)
	}
	return o, nil
}
