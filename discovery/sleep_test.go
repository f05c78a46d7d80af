package discovery

import (
	"testing"
	"time"
)

func TestSleepIsNoticed(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name               string
		wall, mono, asleep time.Duration // since the last look, 10 s of which were due
		unknown            bool
		want               string
	}{
		{name: "in time", wall: 10 * s, mono: 10 * s},
		{name: "early", wall: s, mono: s},
		{name: "a busy machine", wall: 15 * s, mono: 15 * s},
		{name: "suspended", wall: 3610 * s, mono: 10 * s, asleep: 3600 * s, want: "this host was suspended for 1h0m0s"},
		{name: "suspended, with a clock that stopped", wall: 10 * s, mono: 10 * s, asleep: 3600 * s, want: "this host was suspended for 1h0m0s"},
		{name: "stopped", wall: 70 * s, mono: 70 * s, want: "the process stood still for 1m0s"},
		{name: "slewed", wall: 11 * s, mono: 10 * s},
		{name: "set ahead", wall: 3610 * s, mono: 10 * s, want: "the clock was set ahead by 1h0m0s, or a virtual machine was paused"},
		{name: "set back", wall: -3600 * s, mono: 10 * s},
		{name: "set back while suspended", wall: -3600 * s, mono: 10 * s, asleep: 60 * s, want: "this host was suspended for 1m0s"},
		{name: "unknown", wall: 3610 * s, mono: 10 * s, unknown: true, want: "this host was suspended for 1h0m0s, or its clock set ahead"},
	} {
		var w sleepWatch
		now := clocks{start, 5 * s, 100 * s, !c.unknown}
		if got := w.looked(now, 10*s); got != "" {
			t.Errorf("%s: the first look says %q", c.name, got)
		}
		now.wall, now.mono, now.asleep = now.wall.Add(c.wall), now.mono+c.mono, now.asleep+c.asleep
		if got := w.looked(now, 10*s); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		now.wall, now.mono = now.wall.Add(10*s), now.mono+10*s
		if got := w.looked(now, 10*s); got != "" {
			t.Errorf("%s: the look after says %q", c.name, got)
		}
	}
}
