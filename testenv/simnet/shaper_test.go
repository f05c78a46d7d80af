package simnet

import (
	"math"
	"testing"
	"time"
)

func newShaper(t *testing.T, c Conditions) *shaper {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &shaper{Conditions: c, dice: newDice(1, "link")}
}

func TestRateAndDelay(t *testing.T) {
	const ms = time.Millisecond
	// 1250 bytes take 10 ms at 1 Mbit/s; the queue holds two besides the one being sent.
	s := newShaper(t, Conditions{Rate: 1e6, Delay: 50 * ms, Queue: 3750})
	for i, c := range []struct {
		at, want time.Duration
		reason   Reason
	}{
		{0, 60 * ms, ""},
		{0, 70 * ms, ""},
		{0, 80 * ms, ""},
		{0, 0, DropQueueFull},
		{10 * ms, 90 * ms, ""},
		{10 * ms, 0, DropQueueFull},
		{100 * ms, 160 * ms, ""}, // idle before
	} {
		got, reason := s.send(epoch.Add(c.at), 1250, 1, 1)
		if reason != c.reason || reason == "" && got.Sub(epoch) != c.want {
			t.Errorf("datagram %d at %v: got %v, %q, want %v, %q", i, c.at, got.Sub(epoch), reason, c.want, c.reason)
		}
	}
}

func TestJitterKeepsTheOrderAndItsBounds(t *testing.T) {
	const delay, jitter = 10 * time.Millisecond, 8 * time.Millisecond
	s := newShaper(t, Conditions{Delay: delay, Jitter: jitter})
	var last time.Time
	differs := false
	for i := range 1000 {
		now := epoch.Add(time.Duration(i) * time.Millisecond)
		at, _ := s.send(now, 100, 1, 7)
		if at.Before(last) {
			t.Fatalf("datagram %d overtakes", i)
		}
		if d := at.Sub(now); d < delay || d >= delay+jitter {
			t.Fatalf("datagram %d took %v, want %v to %v", i, d, delay, delay+jitter)
		}
		differs = differs || at.Sub(now) != delay
		last = at
	}
	if !differs {
		t.Error("there is no jitter")
	}
}

func TestLossAndReorderingHaveTheirProbability(t *testing.T) {
	const n, loss, reorder = 100_000, 0.05, 0.02
	s := newShaper(t, Conditions{Loss: loss, Reorder: reorder})
	lost, late := 0, 0
	for i := range n {
		at, reason := s.send(epoch, 100, 1, uint64(i%50))
		switch {
		case reason == DropLoss:
			lost++
		case reason != "":
			t.Fatalf("dropped: %s", reason)
		case at.Equal(epoch.Add(defaultReorderDelay)):
			late++
		case !at.Equal(epoch):
			t.Fatalf("arrives at %v, want at once or after %v", at.Sub(epoch), defaultReorderDelay)
		}
	}
	// Five standard deviations of the binomial distribution.
	within := func(name string, got int, of, p float64) {
		if d := math.Abs(float64(got) - of*p); d > 5*math.Sqrt(of*p*(1-p)) {
			t.Errorf("%s: %d of %g, want about %g", name, got, of, of*p)
		}
	}
	within("lost", lost, n, loss)
	within("held back", late, n*(1-loss), reorder)
}

func TestChanceOfAFlowDoesNotDependOnOthers(t *testing.T) {
	fate := func(seed uint64, others int) []bool {
		s := newShaper(t, Conditions{Loss: 0.5})
		s.dice = newDice(seed, "link")
		var out []bool
		for range 200 {
			for o := range others {
				s.send(epoch, 100, 1, uint64(1000+o))
			}
			_, reason := s.send(epoch, 100, 1, 7)
			out = append(out, reason == "")
		}
		return out
	}
	alone := fate(1, 0)
	if got := fate(1, 3); !equal(got, alone) {
		t.Error("other flows changed the fate of this one")
	}
	if got := fate(2, 0); equal(got, alone) {
		t.Error("another seed changed nothing")
	}
}

func equal(a, b []bool) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestConditionsAreChecked(t *testing.T) {
	for _, c := range []Conditions{{Rate: -1}, {Delay: -1}, {Jitter: -1}, {Loss: 1.1}, {Loss: -0.1}, {Reorder: 2}, {MTU: -1}, {Queue: -1}} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	for _, b := range []Behaviour{{Mapping: 3}, {Filtering: 3}, {Ports: 3}, {Overload: true}, {Timeout: -1}, {PortMin: 2000, PortMax: 1999}} {
		if _, err := b.withDefaults(); err == nil {
			t.Errorf("%+v was accepted", b)
		}
	}
}
