package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	var stderr bytes.Buffer
	o, err := parse([]string{"-scenario", "wan-20ms-1%,wan-keys-idle", "-subject", "postern", "-runs", "2", "-duration", "3s"}, &stderr)
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if n := len(o.grid.Scenarios); n != 2 || o.grid.Options.Runs != 2 || o.grid.Options.Duration != 3*time.Second {
		t.Errorf("got %d scenarios, %+v", n, o.grid.Options)
	}
	if o, err = parse(nil, &stderr); err != nil || len(o.grid.Scenarios) != 14 {
		t.Errorf("without arguments: got %d scenarios, %v; want all 14", len(o.grid.Scenarios), err)
	}
}

func TestBadArgumentsSayWhatIsWanted(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-o", "xml"}, `wan: -o "xml": want table, json or benchstat`},
		{[]string{"-scenario", "tcp-1"}, `wan: no scenario "tcp-1"`},
		{[]string{"-runs", "-1"}, "cannot be negative"},
		{[]string{"far"}, `wan: unexpected argument "far"`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			err := run(t.Context(), c.args, strings.NewReader(""), &stdout, &stderr)
			if !errors.Is(err, errUsage) {
				t.Errorf("got %v, want %v", err, errUsage)
			}
			if !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
				t.Errorf("stderr %q, stdout %q; want %q on stderr alone", stderr.String(), stdout.String(), c.want)
			}
		})
	}
}
