package sender

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// randomPath returns a path with one to three oddities.
func randomPath(seed uint64) simPath {
	r := rand.New(rand.NewPCG(seed, 5))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(most-least)))
	}
	w := &wild{}
	p := simPath{
		rate: []float64{1e6, 3e6, 10e6, 20e6}[r.IntN(4)], rtt: between(10*ms, 60*ms) << r.IntN(3),
		loss: []float64{0, 0, 0.001, 0.01, 0.03}[r.IntN(5)], timers: ms, acks: 1 + r.IntN(2), wild: w,
	}
	p.queue = max(between(p.rtt/2, 3*p.rtt), 20*ms)
	for range 1 + r.IntN(3) {
		switch r.IntN(14) {
		case 0:
			w.ackLoss = 0.5 * r.Float64()
		case 1:
			w.batch = between(ms, 20*ms)
		case 2:
			w.backEach = between(ms, 50*ms)
		case 3:
			w.copies = 0.2 * r.Float64()
		case 4:
			w.strays, w.stray = 0.05*r.Float64(), between(ms, 100*ms)
		case 5:
			p.jitter = between(ms, 20*ms)
		case 6:
			p.burst = 0.0025 * r.Float64()
		case 7:
			w.resent = 0.5 * r.Float64()
		case 8:
			w.bigLoss = 0.03 * r.Float64()
		case 9:
			w.aqm, p.queue = coDel+aqm(r.IntN(2)), 500*ms
		case 10:
			w.out.every, w.out.lasts, w.out.holds = between(time.Second, 6*time.Second), between(20*ms, 300*ms), r.IntN(2) == 0
		case 11:
			p.acks, w.delay = 2+r.IntN(7), between(20*ms, 200*ms)
		case 12:
			w.back, w.backHeld = p.rate/8, between(100*ms, 500*ms)
		case 13:
			p.police, w.bucket = p.rate*(0.3+0.4*r.Float64()), 8<<10<<r.IntN(6)
		}
	}
	return p
}

// carries returns what a path can carry, in Mbit/s: what arrives of more than it can.
func carries(p simPath, skip, measure time.Duration) float64 {
	s := newSim(p, 1)
	b := &blast{s: s, rate: 1.2 * p.rate}
	s.at(0, b.start)
	s.run(skip)
	before := b.delivered()
	s.run(skip + measure)
	return float64(b.delivered()-before) * 8 / 1e6 / measure.Seconds()
}

// Paths with several oddities at once, drawn at random, carry at least half of what they can, and
// most of them nearly all.
func TestUnlistedPaths(t *testing.T) {
	var mean atomic.Int64 // in thousandths
	t.Run("each", func(t *testing.T) {
		for i := range uint64(unlistedPaths) {
			seed := 85 + i
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				p := randomPath(seed)
				can := carries(p, 6*time.Second, 12*time.Second)
				r := simulate(seed, p, "own", 6*time.Second, 12*time.Second)
				mean.Add(int64(r.sum() / can * 1000 / unlistedPaths))
				if r.sum() < can/2 {
					w := *p.wild
					p.wild = nil
					t.Errorf("%.2f Mbit/s of %.2f; path %+v %+v", r.sum(), can, p, w)
				}
			})
		}
	})
	t.Logf("%.2f of what the paths can carry, on average", float64(mean.Load())/1000)
	if mean.Load() < 850 {
		t.Error("want 0.85")
	}
}

// Links that lose all packets for a moment, as in a radio link's handover, or that let packets wait
// for each other, as on Wi-Fi; and receivers that acknowledge many packets at once.
func TestLinksWithPauses(t *testing.T) {
	outage := func(every, lasts time.Duration) (w wild) {
		w.out.every, w.out.lasts = every, lasts
		return w
	}
	for _, c := range []struct {
		name string
		path simPath
		wild wild
		want float64
	}{
		{"200 ms of each second", simPath{rtt: 100 * ms}, outage(time.Second, 200*ms), 0.6},
		{"200 ms of each second, 1 %", simPath{rtt: 100 * ms, loss: 0.01}, outage(time.Second, 200*ms), 0.6},
		{"50 ms of 300", simPath{rtt: 100 * ms}, outage(300*ms, 50*ms), 0.7},
		{"50 ms of 300, short", simPath{rtt: 20 * ms}, outage(300*ms, 50*ms), 0.65},
		{"batches of 20 ms, 1 %", simPath{rtt: 20 * ms, loss: 0.01}, wild{batch: 20 * ms}, 0.8},
		{"acknowledgements every 100 ms, 1 %", simPath{rtt: 100 * ms, loss: 0.01}, wild{backEach: 100 * ms}, 0.7},
		{"acknowledgements every 100 ms, short, 1 %", simPath{rtt: 20 * ms, loss: 0.01}, wild{backEach: 100 * ms}, 0.4},
		{"acknowledgements for trains, short", simPath{rtt: 5 * ms, acks: 46}, wild{}, 0.9},
		{"a tenth of the acknowledgements", simPath{rtt: 20 * ms}, wild{ackLoss: 0.9}, 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.path.rate, c.path.queue, c.path.timers, c.path.wild = 10e6, max(c.path.rtt, 20*ms), ms, &c.wild
			const runs = 8
			can := carries(c.path, 8*time.Second, 15*time.Second)
			mean, least, dropped := 0.0, 1.0, 0.0
			for seed := range uint64(runs) {
				r := simulate(1+seed, c.path, "own", 8*time.Second, 15*time.Second)
				mean, least, dropped = mean+r.sum()/can/runs, min(least, r.sum()/can), max(dropped, r.dropped)
			}
			t.Logf("%.2f of %.1f Mbit/s on average, %.2f at least, overflow %.1f %%", mean, can, least, dropped*100)
			if mean < c.want {
				t.Errorf("%.2f of what the path can carry, want %.2f", mean, c.want)
			}
			if dropped > 0.15 { // The model of BBR version 1 makes them drop up to 0.32.
				t.Errorf("the path dropped %.1f %%, want 15 %% at most", dropped*100)
			}
		})
	}
}

// A rate limiter far below the link's rate loses many packets in a row when its bucket is empty.
// That is not taken for an interruption of the path.
func TestStrictPolicer(t *testing.T) {
	for bucket, want := range map[int]float64{16 << 10: 0.52, 512 << 10: 0.77} {
		p := simPath{rate: 20e6, rtt: 100 * ms, queue: 100 * ms, police: 300e3, timers: ms, wild: &wild{bucket: bucket}}
		r := simulate(1, p, "own", 0, 10*time.Second)
		t.Logf("bucket of %d: %.2f Mbit/s, overflow %.1f %%", bucket, r.sum(), r.dropped*100)
		if r.dropped > want {
			t.Errorf("bucket of %d: it dropped %.1f %% in the first 10 s, want %.0f %% at most", bucket, r.dropped*100, want*100)
		}
	}
}

// A rate limiter with a quota for each slot of time, or a receiver whose CPU is throttled, loses all
// packets of the rest of the slot. That is not taken for an interruption either.
func TestSlottedPolicer(t *testing.T) {
	for _, c := range []struct {
		rtt, slot time.Duration
		limit     float64
		most      float64 // share of packets that it drops
		least     float64 // Mbit/s that it lets pass
	}{
		{100 * ms, 250 * ms, 6e6, 0.15, 4.7},
		{10 * ms, 50 * ms, 6e6, 0.36, 4.7},
		{10 * ms, 100 * ms, 6e6, 0.38, 3.1},
	} {
		t.Run(fmt.Sprintf("slots of %v, %v", c.slot, c.rtt), func(t *testing.T) {
			t.Parallel()
			const runs = 8
			p := simPath{rate: 20e6, rtt: c.rtt, queue: max(c.rtt, 20*ms), police: c.limit, timers: ms, wild: &wild{slot: c.slot}}
			var dropped, sum float64
			for seed := range uint64(runs) {
				r := simulate(1+seed, p, "own", 5*time.Second, 20*time.Second)
				dropped, sum = dropped+r.dropped/runs, sum+r.sum()/runs
			}
			t.Logf("%.2f Mbit/s, overflow %.1f %%", sum, dropped*100)
			if dropped > c.most || sum < c.least {
				t.Errorf("it dropped %.1f %%, want %.0f %% at most; it let %.2f Mbit/s pass, want %.2f", dropped*100, c.most*100, sum, c.least)
			}
		})
	}
}

// What an interruption loses is never counted, not even until more of it is known.
func TestInterruptionIsNotCounted(t *testing.T) {
	w := &wild{}
	w.out.every, w.out.lasts = time.Second, 40*ms
	s := newSim(simPath{rate: 10e6, rtt: 200 * ms, queue: 100 * ms, timers: ms, wild: w}, 1)
	own := &ownFlow{s: s}
	own.start()
	for before := int64(0); s.now < 10*time.Second; s.run(s.now + ms) {
		lost := own.on.path.State(s.now).Lost
		if lost < before {
			t.Fatalf("%d packets lost in all at %v, and %d before", lost, s.now, before)
		}
		before = lost
	}
}

// An interruption loses few packets of each of many flows.
func TestInterruptionsOfManyFlows(t *testing.T) {
	for _, flows := range []int{1, 4, 16} {
		w := &wild{}
		w.out.every, w.out.lasts = 300*ms, 50*ms
		p := simPath{rate: 10e6, rtt: 100 * ms, queue: 100 * ms, timers: ms, wild: w}
		s := newSim(p, 1)
		first := &ownFlow{s: s}
		first.start()
		all := []*ownFlow{first}
		for i := 1; i < flows; i++ {
			o := &ownFlow{s: s, id: i, on: first.on}
			o.start()
			all = append(all, o)
		}
		var sum int64
		s.run(8 * time.Second)
		for _, o := range all {
			sum -= o.delivered()
		}
		s.run(28 * time.Second)
		for _, o := range all {
			sum += o.delivered()
		}
		mbit := float64(sum) * 8 / 1e6 / 20
		can := carries(p, 8*time.Second, 20*time.Second)
		t.Logf("%d flows: %.2f of %.2f Mbit/s", flows, mbit/can, can)
		if mbit < 0.7*can {
			t.Errorf("%d flows: %.2f of what the path can carry, want 0.7", flows, mbit/can)
		}
	}
}
