package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/load"
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
		{[]string{"-o", "xml"}, `bench: -o "xml": want table, json or benchstat`},
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

func TestProgressLine(t *testing.T) {
	p := bench.Progress{Done: 2, Of: 14, Scenario: "tcp-1", Subject: "stock"}
	for want, r := range map[string]bench.Run{
		"[2/14] tcp-1 stock: 4.00 Gbit/s, 1.60 cores, 123 MB": {Result: &load.Result{
			Bytes: 1e9, Seconds: 2, UserSeconds: 3, SystemSeconds: 0.2, PeakRSS: 123e6,
		}},
		"[2/14] tcp-1 stock: failed: no result after 64s": {Error: "no result after 64s"},
	} {
		p.Run = r
		if got := progressLine(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
