package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestParseDefaults(t *testing.T) {
	var stderr bytes.Buffer
	o, err := parse(nil, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	if o.runner.Runs != 6 || o.runner.Duration != 3*time.Second || o.runner.Warmup != time.Second || o.require {
		t.Errorf("got %+v, want 6 runs of 3 s after 1 s, nothing required", o.runner)
	}
	for _, s := range o.scenarios {
		if !s.Default {
			t.Errorf("got scenario %s, which is not of the default set", s.Name)
		}
	}
	if len(o.scenarios) == 0 {
		t.Error("got no scenario")
	}
}

func TestBadArgumentsSayWhatIsWanted(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-o", "xml"}, `bench: -o "xml": want table, chart, json or benchstat`},
		{[]string{"-scenario", "tcp-9"}, `bench: no scenario "tcp-9"`},
		{[]string{"-subject", "ipsec"}, `bench: no subject "ipsec"`},
		{[]string{"fast"}, `bench: unexpected argument "fast"`},
		{[]string{"-runs", "many"}, `invalid value "many"`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			err := run(t.Context(), c.args, &stdout, &stderr)
			if !errors.Is(err, errUsage) {
				t.Errorf("got %v, want %v", err, errUsage)
			}
			if !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
				t.Errorf("stderr %q, stdout %q; want %q on stderr alone", stderr.String(), stdout.String(), c.want)
			}
		})
	}
}

func TestASavedReportIsShown(t *testing.T) {
	for format, want := range map[string]string{"table": "× stock", "chart": "more is better", "benchstat": "BenchmarkTCP/streams=1"} {
		var stdout, stderr bytes.Buffer
		if err := run(t.Context(), []string{"-read", "../../testdata/report.json", "-o", format}, &stdout, &stderr); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("-o %s: got %q, want %q in it", format, stdout.String(), want)
		}
	}
	err := run(t.Context(), []string{"-read", "../../testdata/report.json", "-require"}, io.Discard, io.Discard)
	if !errors.Is(err, errRequired) {
		t.Errorf("-require of a report that falls short: got %v, want %v", err, errRequired)
	}
}
