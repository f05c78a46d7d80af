package cmdline

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestExitCodesAndWhatIsSaid(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"done", nil, 0, ""},
		{"help", flag.ErrHelp, 0, ""},
		{"failure", errors.New("no room"), 1, "bench: no room\n"},
		{"failure of the package of that name", errors.New("bench: no room"), 1, "bench: no room\n"},
		{"two failures", errors.Join(errors.New("no room"), errors.New("no time")), 1, "bench: no room; no time\n"},
		{"mistake", Usagef("for example -runs 6", "-runs %d measures nothing", 0), 2, "bench: -runs 0 measures nothing (for example -runs 6)\n"},
		{"wrapped mistake", fmt.Errorf("bench: %w", Usagef("leave it out", "-o")), 2, "bench: -o (leave it out)\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, said bytes.Buffer
			p := func(context.Context, []string, Streams) error { return c.err }
			if code := Run(t.Context(), "bench", p, nil, Streams{strings.NewReader(""), &out, &said}); code != c.code {
				t.Errorf("exit code: got %d, want %d", code, c.code)
			}
			if said.String() != c.want || out.Len() > 0 {
				t.Errorf("got %q on stderr and %q on stdout, want %q on stderr alone", said.String(), out.String(), c.want)
			}
		})
	}
}

// parse parses a command line with a set of flags.
func parse(line string, arguments ...string) (runs int, names List, help string, err error) {
	var out bytes.Buffer
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&runs, "runs", 6, "rounds")
	f.Var(&names, "scenario", "only these `scenarios`")
	err = Parse(f, strings.Fields(line), &out, arguments...)
	return runs, names, out.String(), err
}

func TestFlagsAreRead(t *testing.T) {
	runs, names, help, err := parse("-runs 2 -scenario tcp-1,,path -scenario idle")
	if err != nil || runs != 2 || help != "" {
		t.Errorf("got %d runs, %v, and %q said; want 2, no error and no output", runs, err, help)
	}
	if want := (List{"tcp-1", "path", "idle"}); !slices.Equal(names, want) {
		t.Errorf("names: got %q, want %q", names, want)
	}
	if _, names, _, err := parse(""); err != nil || len(names) > 0 {
		t.Errorf("without flags: got %q, %v; want no names", names, err)
	}
	if _, _, _, err := parse("-runs 2 storm idle", "idle", "storm", "flood"); err != nil {
		t.Errorf("known arguments: got %v", err)
	}
}

func TestMistakesSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		line      string
		arguments []string
		want      string
	}{
		{"-fast", nil, "flag provided but not defined: -fast (-h lists the flags)"},
		{"-runs many", nil, `invalid value "many" for flag -runs: parse error (-h lists the flags)`},
		{"-runs", nil, "flag needs an argument: -runs (-h lists the flags)"},
		{"fast", nil, `unexpected argument "fast" (it takes flags alone; -h lists them)`},
		{"idle fast", []string{"idle", "storm"}, `unexpected argument "fast" (there are: idle, storm; flags go before them)`},
		{"idle -runs 2", []string{"idle", "storm"}, `unexpected argument "-runs" (there are: idle, storm; flags go before them)`},
	} {
		t.Run(c.line, func(t *testing.T) {
			_, _, help, err := parse(c.line, c.arguments...)
			if err == nil || err.Error() != c.want || !errors.As(err, new(*usageError)) {
				t.Errorf("got %v, want the mistake %s", err, c.want)
			}
			if help != "" {
				t.Errorf("got output %q, want none", help)
			}
		})
	}
}

func TestHelpIsWrittenOnce(t *testing.T) {
	_, _, help, err := parse("-h")
	if !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v, want %v", err, flag.ErrHelp)
	}
	for _, want := range []string{"Usage of bench:", "-runs int", "(default 6)", "-scenario scenarios"} {
		if strings.Count(help, want) != 1 {
			t.Errorf("got %q, want %q in it once", help, want)
		}
	}
}
