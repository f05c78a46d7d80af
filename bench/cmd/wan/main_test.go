package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/cmd/internal/cmdline"
	"github.com/postern-dev/postern/bench/wan"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"-scenario", "wan-20ms-1%,wan-keys-idle", "-subject", "postern", "-runs", "2", "-duration", "3s"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(o.grid.Scenarios); n != 2 || o.grid.Options.Runs != 2 || o.grid.Options.Duration != 3*time.Second {
		t.Errorf("got %d scenarios, %+v", n, o.grid.Options)
	}
	if o, err = parse(nil, io.Discard); err != nil || len(o.grid.Scenarios) != len(wan.Scenarios()) {
		t.Errorf("without arguments: got %d scenarios, %v; want all %d", len(o.grid.Scenarios), err, len(wan.Scenarios()))
	}
	for _, s := range o.grid.Scenarios {
		if slices.Contains(s.Subjects, bench.PosternBefore) {
			t.Errorf("%s: got postern-before without -before", s.Name)
		}
	}
	o, err = parse([]string{"-cells", "100ms/1%,duel/cubic", "-before", "/tmp/wan"}, io.Discard)
	if n := len(o.grid.Scenarios); err != nil || n != 6 || o.grid.Scenarios[0].Cell != "100ms/1%" || !slices.Contains(o.grid.Scenarios[0].Subjects, bench.PosternBefore) {
		t.Errorf("patterns: got %d scenarios, %v; want one and five queues, with postern-before", n, err)
	}
}

func TestMistakesEndWithExitCode2AndSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-o", "xml"}, `wan: -o "xml" is not known (there are: table, json, benchstat)`},
		{[]string{"-scenario", "tcp-1"}, `wan: no scenario "tcp-1" (-h says how scenarios are called, bench/README.md has the subjects)`},
		{[]string{"-runs", "-1"}, "wan: -runs, -duration and -warmup cannot be negative (leave out what is to be as usual)"},
		{[]string{"-cells", "3ms/*"}, `wan: no cell is like "3ms/*" (-h says how scenarios are called, bench/README.md has the subjects)`},
		{[]string{"-base", "stock"}, `wan: -base "stock" is no subject (bench/README.md has the subjects)`},
		{[]string{"-read", "f", "-o", "json", "-runs", "1"}, "wan: -runs makes no sense with -read (-o and -base say how a report is shown)"},
		{[]string{"far"}, `wan: unexpected argument "far" (it takes flags alone; -h lists them)`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			s := cmdline.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}
			code := cmdline.Run(t.Context(), "wan", run, c.args, s)
			if code != 2 || stderr.String() != c.want+"\n" || stdout.Len() > 0 {
				t.Errorf("exit code %d, stderr %q, stdout %q; want 2 and %q on stderr alone", code, stderr.String(), stdout.String(), c.want)
			}
		})
	}
}
