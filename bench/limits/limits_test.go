package limits

import (
	"strings"
	"testing"
)

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]uint64{
		"64MiB": 64 << 20, "64Mi": 64 << 20, "1.5GiB": 3 << 29, "64M": 64e6, "64MB": 64e6, "512k": 512e3,
		"67108864": 64 << 20, "100B": 100, "1Gi": 1 << 30, "0": 0,
	} {
		if got, err := ParseMemory(text); err != nil || got != want {
			t.Errorf("%s: got %d and %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1M", "64XB", "sixty", "NaN", "1e30GiB"} {
		if got, err := ParseMemory(text); err == nil || !strings.Contains(err.Error(), "such as 64MiB") {
			t.Errorf("%q: got %d and %v, want an error with an example", text, got, err)
		}
	}
}

func TestLimitsThatNoRunCanKeepAreRefused(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		want   string // part of the error, empty for none
	}{
		{Limits{}, ""},
		{Limits{CPUs: 0.5, Memory: 64 << 20}, ""},
		{Limits{CPUs: 0.001}, "0.001 CPUs"},
		{Limits{CPUs: -1}, "-1 CPUs"},
		{Limits{Memory: 1 << 20}, "1048576 bytes of memory"},
	} {
		err := c.limits.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.limits, err, c.want)
		}
	}
}

func TestLimitsInWords(t *testing.T) {
	for want, l := range map[string]Limits{
		"no limits": {}, "0.5 CPU": {CPUs: 0.5}, "64 MiB": {Memory: 64 << 20}, "2 CPU, 1.5 MiB": {CPUs: 2, Memory: 3 << 19},
	} {
		if got := l.String(); got != want || l.Any() != (want != "no limits") {
			t.Errorf("got %q and %v, want %q", got, l.Any(), want)
		}
	}
}
