package path

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A path that is interrupted at regular intervals has a period, with traffic and without. Without,
// some interruptions are not seen.
func TestThePeriodOfInterruptionsIsSeen(t *testing.T) {
	for _, c := range []struct {
		name            string
		down, up, watch time.Duration
		idle            bool
	}{
		{"a flapping link", 8 * time.Second, 17 * time.Second, 5 * time.Minute, false},
		{"a flapping link, idle", 10 * time.Second, 22 * time.Second, 20 * time.Minute, true},
		{"long outages", 40 * time.Second, 80 * time.Second, 20 * time.Minute, false},
		{"a reconnection every 5 min", 5 * time.Second, 295 * time.Second, 40 * time.Minute, false},
		{"one every hour, idle", time.Minute, 59 * time.Minute, 8 * time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, true)
			const rtt = 20 * time.Millisecond
			given(b, Candidate{direct1, SourceAdvertised})
			idle := []bool{}
			if c.idle {
				idle = []bool{true}
			}
			b.rtt[to(direct1)] = rtt
			b.run(time.Minute)
			if got := b.m.Snapshot().Interruptions; got != (Interruptions{}) {
				t.Errorf("while it works: %+v", got)
			}
			for range c.watch / (c.down + c.up) {
				delete(b.rtt, to(direct1))
				b.run(c.down, idle...)
				b.rtt[to(direct1)] = rtt
				b.run(c.up, idle...)
			}
			got := b.m.Snapshot().Interruptions
			if want := c.down + c.up; got.Times < leastInterruptions || (got.Period-want).Abs() > max(want/20, time.Second) || got.Longest < c.down/2 || got.Longest > c.down+30*time.Second {
				t.Errorf("interruptions of %v every %v: %+v", c.down, want, got)
			}
		})
	}
}

// Interruptions without a period, and restarts of the peer, are none of these.
func TestIrregularInterruptionsHaveNoPeriod(t *testing.T) {
	dice, regular := rand.New(rand.NewPCG(1, 2)), 0
	const histories = 400
	for range histories {
		b := newBench(t, true)
		given(b, Candidate{direct1, SourceAdvertised})
		b.rtt[to(direct1)] = 20 * time.Millisecond
		b.run(time.Minute)
		for range 8 {
			delete(b.rtt, to(direct1))
			b.run(5*time.Second + time.Duration(dice.Int64N(int64(20*time.Second))))
			b.rtt[to(direct1)] = 20 * time.Millisecond
			b.run(20*time.Second + time.Duration(dice.ExpFloat64()*float64(2*time.Minute)))
		}
		if b.m.Snapshot().Interruptions.Times > 0 {
			regular++
		}
	}
	if regular > histories/50 {
		t.Errorf("%d of %d irregular histories are regular", regular, histories)
	}

	b := newBench(t, true)
	given(b, Candidate{direct1, SourceAdvertised})
	for range 10 {
		delete(b.rtt, to(direct1))
		b.run(8 * time.Second)
		b.rtt[to(direct1)] = 20 * time.Millisecond
		b.run(time.Second)
		b.m.Requested(b.now, to(direct1), true)
		b.run(30 * time.Second)
	}
	if got := b.m.Snapshot().Interruptions; got.Times > 0 {
		t.Errorf("restarts of the peer: %+v", got)
	}
}

// Interruptions that seem to begin at once, as when a clock is set back, have none either.
func TestIntervalsOfNothingHaveNoPeriod(t *testing.T) {
	for _, shortest := range []time.Duration{-time.Second, 0, 1} {
		if got := periodOf([]time.Duration{shortest, time.Minute, time.Minute, time.Minute}); got != 0 {
			t.Errorf("intervals of %v and 1m: got a period of %v", shortest, got)
		}
	}
}

// On a path that fails often, some intervals fit a short period by chance. Nearly always that is seen.
func TestIntervalsThatFitByChanceHaveNoPeriod(t *testing.T) {
	dice, regular := rand.New(rand.NewPCG(1, 2)), 0
	const outages = 20_000
	var x interruptions
	now := time.Unix(0, 0)
	for range outages {
		began := now.Add(10*time.Second + time.Duration(dice.ExpFloat64()*float64(20*time.Second)))
		now = began.Add(4*time.Second + time.Duration(dice.ExpFloat64()*float64(6*time.Second)))
		if x.ended(outage{began, now}); x.regular.Times > 0 {
			regular++
		}
	}
	if regular > outages/200 {
		t.Errorf("after %d of %d irregular outages they are regular", regular, outages)
	}
}

// Somebody who switches a machine off at night, and on at about nine, is no router that reconnects.
func TestWhoSleepsAtNightIsNotInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		down, spread time.Duration
		regular      bool
	}{
		"a laptop at night":                   {15 * time.Hour, 20 * time.Minute, false},
		"a machine that is off by schedule":   {15 * time.Hour, 0, false},
		"somebody who moves at about nine":    {time.Minute, 20 * time.Minute, false},
		"a router that reconnects each night": {time.Minute, 0, true},
	} {
		dice := rand.New(rand.NewPCG(1, 2))
		var x interruptions
		day := time.Unix(0, 0)
		for range 10 {
			day = day.Add(24 * time.Hour)
			ended := day.Add(time.Duration((2*dice.Float64() - 1) * float64(c.spread)))
			x.ended(outage{ended.Add(-c.down), ended})
		}
		if got := x.regular.Times > 0; got != c.regular {
			t.Errorf("%s: regular: %v", name, got)
		}
	}
}

// A plain WireGuard peer, which answers no probes, is silent when it sleeps, and that shows when
// something is sent to it.
func TestAPeerThatAnswersNoProbesIsNotInterrupted(t *testing.T) {
	b := newBench(t, true)
	given(b, Candidate{direct1, SourceAdvertised})
	for range 10 {
		b.m.HandshakeDone(b.now, to(direct1))
		b.run(290 * time.Second)
		b.m.Silent(b.now)
		b.run(10 * time.Second)
	}
	b.m.HandshakeDone(b.now, to(direct1))
	b.run(time.Second)
	if s := b.m.Snapshot(); s.Interruptions.Times > 0 || s.Kind == KindNone {
		t.Errorf("got %+v", s.Interruptions)
	}
}
