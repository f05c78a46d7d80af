package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/cmd/internal/cmdline"
)

func TestParseDefaults(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.runner.Runs != 6 || o.runner.Duration != 3*time.Second || o.runner.Warmup != time.Second || o.require {
		t.Errorf("got %+v, want 6 runs of 3 s after 1 s, nothing required", o.runner)
	}
	for _, s := range o.scenarios {
		if !s.Default {
			t.Errorf("got scenario %s, which is not in the default set", s.Name)
		}
	}
	if len(o.scenarios) == 0 {
		t.Error("got no scenario")
	}
}

func TestMistakesEndWithExitCode2AndSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-o", "xml"}, `bench: -o "xml" is not known (there are: table, chart, json, benchstat)`},
		{[]string{"-scenario", "tcp-9"}, `bench: no scenario "tcp-9" (-h names the scenarios, bench/README.md the subjects, too)`},
		{[]string{"-subject", "ipsec"}, `bench: no subject "ipsec" (-h names the scenarios, bench/README.md the subjects, too)`},
		{[]string{"fast"}, `bench: unexpected argument "fast" (it takes flags alone; -h lists them)`},
		{[]string{"-runs", "0"}, "bench: -runs 0 measures nothing (for example -runs 6)"},
		{[]string{"-duration", "0s"}, "bench: -duration 0s after -warmup 1s measures nothing (for example -duration 3s -warmup 1s)"},
		{[]string{"-warmup", "-1s"}, "bench: -duration 3s after -warmup -1s measures nothing (for example -duration 3s -warmup 1s)"},
		{[]string{"-read", "a.json", "-scenario", "tcp-1"}, "bench: -scenario: -read shows a report as it is, and measures nothing (leave out -scenario, or -read)"},
		{[]string{"-save", "b.json", "-read", "a.json"}, "bench: -save: -read shows a report as it is, and measures nothing (leave out -save, or -read)"},
		{[]string{"-read", "a.json", "-runs", "6"}, "bench: -runs: -read shows a report as it is, and measures nothing (leave out -runs, or -read)"},
		{[]string{"-runs", "many"}, `bench: invalid value "many" for flag -runs: parse error (-h lists the flags)`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			code, stdout, stderr := execute(t, c.args...)
			if code != 2 || stderr != c.want+"\n" || stdout != "" {
				t.Errorf("exit code %d, stderr %q, stdout %q; want 2 and %q on stderr alone", code, stderr, stdout, c.want)
			}
		})
	}
}

// execute runs the command and returns its exit code and output.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	code = cmdline.Run(t.Context(), "bench", run, args, cmdline.Streams{In: strings.NewReader(""), Out: &out, Err: &said})
	return code, out.String(), said.String()
}

func TestASavedReportIsShown(t *testing.T) {
	const saved = "../../testdata/report.json"
	for format, want := range map[string]string{"table": "× stock", "chart": "more is better", "benchstat": "BenchmarkTCP/streams=1"} {
		code, stdout, stderr := execute(t, "-read", saved, "-o", format)
		if code != 0 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("-o %s: exit code %d, stdout %q, stderr %q; want 0 and %q on stdout", format, code, stdout, stderr, want)
		}
	}
	code, stdout, stderr := execute(t, "-read", saved, "-require")
	if want := "bench: a required ratio is not met: "; code != 1 || stdout == "" || !strings.HasPrefix(stderr, want) {
		t.Errorf("-require with a ratio that is not met: exit code %d, stderr %q; want 1, the report and %q…", code, stderr, want)
	}
	code, _, stderr = execute(t, "-read", "none.json")
	if want := "bench: read report: open none.json: no such file or directory\n"; code != 1 || stderr != want {
		t.Errorf("missing report: exit code %d, stderr %q; want 1 and %q", code, stderr, want)
	}
}
