package discovery

import (
	"testing"
	"time"
)

func TestSleepIsNoticed(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name       string
		wall, mono time.Duration // since the last look, 10 s of which were due
		want       time.Duration
	}{
		{"in time", 10 * s, 10 * s, 0},
		{"early", s, s, 0},
		{"a busy machine", 15 * s, 15 * s, 0},
		{"suspended for an hour", 3610 * s, 10 * s, 3600 * s},
		{"stopped for a minute", 70 * s, 70 * s, 60 * s},
		{"clock slewed", 11 * s, 10 * s, 0},
		{"clock set back", -3600 * s, 10 * s, 0},
	} {
		var w sleepWatch
		if got := w.looked(start, 5*s, 10*s); got != 0 {
			t.Errorf("%s: the first look says %v", c.name, got)
		}
		if got := w.looked(start.Add(c.wall), 5*s+c.mono, 10*s); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if got := w.looked(start.Add(c.wall+10*s), 5*s+c.mono+10*s, 10*s); got != 0 {
			t.Errorf("%s: the look after says %v", c.name, got)
		}
	}
}
