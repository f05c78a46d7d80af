// Command scale measures a gateway with very many peers, on Linux. The README of package bench
// explains its output.
//
//	go run ./bench/cmd/scale [flags] [idle] [storm] [flood]
//
// Without arguments it measures all three. It needs the binary (make build), and up to 3 GB of
// memory for a thousand gateways.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/bench/cmd/internal/cmdline"
	"github.com/postern-dev/postern/bench/scale"
)

// First arguments with which this program starts itself.
const (
	// serveArg, followed by a configuration file, runs a gateway that can be profiled.
	serveArg = "-serve-hub"
	// joinArg runs a new peer that is timed.
	joinArg = "-join-hub"
)

// The measurements.
const (
	idle  = "idle"
	storm = "storm"
	flood = "flood"
)

func main() { cmdline.Main("scale", run) }

func run(ctx context.Context, args []string, s cmdline.Streams) error {
	if len(args) == 2 && args[0] == serveArg {
		return scale.Serve(ctx, args[1])
	}
	if len(args) == 1 && args[0] == joinArg {
		return scale.Join(ctx, s.In, s.Out)
	}
	o, err := parse(args, s.Out)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	o.common.Joiner = []string{self, joinArg}
	if o.self {
		o.common.Gateway = []string{self, serveArg}
	}
	begun := time.Now()
	o.common.Progress = func(line string) { fmt.Fprintf(s.Err, "%8s %s\n", time.Since(begun).Round(time.Second), line) }
	report, err := measure(ctx, o)
	if o.json {
		text := json.NewEncoder(s.Out)
		text.SetIndent("", "  ")
		return errors.Join(err, text.Encode(report))
	}
	return errors.Join(err, report.WriteText(s.Out))
}

// measure returns what it has measured even if it fails.
func measure(ctx context.Context, o options) (r scale.Report, err error) {
	if slices.Contains(o.what, idle) {
		if r.Idle, err = scale.MeasureIdle(ctx, scale.IdleOptions{
			Options: o.common, Counts: o.peers, Settle: o.settle, Window: o.window, Joins: o.joins,
		}); err != nil {
			return r, err
		}
	}
	if slices.Contains(o.what, storm) {
		if r.Storm, err = scale.MeasureStorm(ctx, scale.StormOptions{
			Options: o.common, Peers: slices.Max(o.peers), Settle: o.settle,
		}); err != nil {
			return r, err
		}
	}
	if slices.Contains(o.what, flood) {
		r.Flood, err = scale.MeasureFlood(ctx, scale.FloodOptions{Options: o.common, Rate: o.rate, Window: o.flood})
	}
	return r, err
}

// options are the parsed command line.
type options struct {
	common         scale.Options
	what           []string
	peers          []int
	settle, window time.Duration
	flood          time.Duration
	joins, rate    int
	json, self     bool
}

// parse parses the command line. Help, if requested, is written to help.
func parse(args []string, help io.Writer) (options, error) {
	var (
		o             options
		binary, peers string
	)
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.StringVar(&binary, "postern", "bin/postern", "the binary that is the hub; empty: this program, which can be profiled by profile.sock beside its configuration")
	f.StringVar(&peers, "peers", "1,10,100,1000", "numbers of idle peers, separated by commas; the storm takes the greatest")
	f.DurationVar(&o.settle, "settle", 60*time.Second, "time between the last peer's being connected and the measurement")
	f.DurationVar(&o.window, "window", 60*time.Second, "time over which idle peers are measured")
	f.IntVar(&o.joins, "joins", 9, "how many new peers are timed")
	f.IntVar(&o.rate, "rate", 50_000, "initiations per second of the flood")
	f.DurationVar(&o.flood, "flood-window", 10*time.Second, "time over which a transfer is measured, alone and flooded")
	f.StringVar(&o.common.Log, "log", "", "keep what the hubs log in this folder")
	f.BoolVar(&o.json, "json", false, "write JSON instead of tables")
	all := []string{idle, storm, flood}
	if err := cmdline.Parse(f, args, help, all...); err != nil {
		return options{}, err
	}
	for text := range strings.SplitSeq(peers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 10_000 {
			return options{}, cmdline.Usagef("want numbers from 1 to 10000, separated by commas", "-peers %q is no list of numbers of peers", peers)
		}
		o.peers = append(o.peers, n)
	}
	switch {
	case o.rate < 1:
		return options{}, cmdline.Usagef("for example -rate 50000", "-rate %d is no flood", o.rate)
	case o.window <= 0 || o.flood <= 0:
		return options{}, cmdline.Usagef("for example 60s and 10s", "-window %s and -flood-window %s: nothing is measured in no time", o.window, o.flood)
	case o.settle < 0 || o.joins < 0:
		return options{}, cmdline.Usagef("0 leaves out either", "-settle %s and -joins %d cannot be negative", o.settle, o.joins)
	}
	if o.what = f.Args(); len(o.what) == 0 {
		o.what = all
	}
	o.self = binary == ""
	o.common.Gateway = []string{binary, "gateway", "--config"}
	return o, nil
}
