package sender

import (
	"testing"
	"time"
)

func TestDelaysBefore(t *testing.T) {
	var d delays
	for _, r := range []trip{{10 * ms, 40 * ms}, {20 * ms, 41 * ms}, {20 * ms, 99 * ms}, {15 * ms, 99 * ms}, {30 * ms, 44 * ms}} {
		d.add(r, 40*ms)
	}
	for at, want := range map[time.Duration]time.Duration{
		9 * ms: 0, 10 * ms: 40 * ms, 19 * ms: 40 * ms, 20 * ms: 41 * ms, 29 * ms: 41 * ms, 70 * ms: 44 * ms, 71 * ms: 0, time.Second: 0,
	} {
		if got := d.before(at, 40*ms); got != want {
			t.Errorf("at %v: %v, want %v", at, got, want)
		}
	}
}

// However many packets there are, and however long ago the latest was, few round trips are kept.
func TestDelaysStaySmall(t *testing.T) {
	var d delays
	now := time.Duration(0)
	for _, each := range []time.Duration{time.Microsecond, ms, time.Second} {
		for range 100_000 {
			now += each
			d.add(trip{now, 40 * ms}, 40*ms)
			if n := len(d.recent.all()); n > delaysKept*delaySteps+1 {
				t.Fatalf("%d round trips", n)
			}
		}
	}
	if n := cap(d.recent.items); n > 4*delaysKept*delaySteps {
		t.Errorf("room for %d round trips", n)
	}
}

func TestQueueDrops(t *testing.T) {
	for _, c := range []struct {
		name            string
		delayed, prompt tally
		index           float64
		want            bool
	}{
		{"nothing known", tally{}, tally{}, 1, false},
		{"no loss", tally{0, 8000}, tally{0, 8000}, 1, false},
		{"a single one", tally{1, 100}, tally{0, 4000}, 1, false},
		{"as many", tally{40, 4000}, tally{38, 4000}, 1, false},
		{"as many of few", tally{6, 100}, tally{240, 4000}, 1, false},
		{"only delayed ones", tally{20, 4000}, tally{0, 4000}, 1, true},
		{"only delayed ones, but in a burst", tally{20, 4000}, tally{0, 4000}, 16, false},
		{"twice as many", tally{80, 4000}, tally{40, 4000}, 1, true},
		{"no prompt packets", tally{50, 1000}, tally{0, 0}, 1, false},
		{"more late than lost", tally{-3, 1000}, tally{0, 4000}, 1, false},
		{"more late than lost after prompt ones", tally{0, 1000}, tally{-2, 1000}, 1, false},
		{"nothing but late ones", tally{0, 0}, tally{-3, -3}, 1, false},
	} {
		if b := (byWait{delayed: c.delayed, prompt: c.prompt}); b.queueDrops(c.index) != c.want {
			t.Errorf("%s: want %v", c.name, c.want)
		}
	}
}
