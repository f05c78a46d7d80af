package path

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// A configured keepalive is the longest time that an idle path rests, whichever side probes next
// and over both families. The default may be exceeded as its documentation says.
func TestAConfiguredKeepaliveIsNotExceeded(t *testing.T) {
	v6 := netip.MustParseAddrPort("[2001:db8::1]:51820")
	for _, c := range []struct {
		keepalive, alone, turns time.Duration
		remote                  netip.AddrPort
	}{
		{10 * time.Second, 10 * time.Second, 10 * time.Second, direct1},
		{10 * time.Second, 10 * time.Second, 10 * time.Second, v6},
		{45 * time.Second, 45 * time.Second, 45 * time.Second, v6},
		{0, 25 * time.Second, 23 * time.Second, direct1},
		{20 * time.Second, 25 * time.Second, 23 * time.Second, direct1},
		{20 * time.Second, 26300 * time.Millisecond, 25300 * time.Millisecond, v6},
	} {
		for i := range 4 {
			turns, beats := i&1 != 0, i&2 != 0
			b := newBench(t, true)
			o := Options{Low: true, Keepalive: c.keepalive, Rand: rand.New(rand.NewPCG(3, 4))}
			if beats {
				o.Epoch = epoch.Add(-123 * time.Millisecond)
			}
			b.m = New(o)
			const rtt, step = 10 * time.Millisecond, 100 * time.Millisecond
			b.rtt[to(c.remote)] = rtt
			given(b, Candidate{c.remote, SourceAdvertised})
			b.run(time.Minute)
			b.run(5*time.Minute, true)
			limit, before := c.alone, len(b.sent)
			if turns {
				limit = c.turns
			}
			var longest time.Duration
			for range 100 {
				last, n := b.now, len(b.sent)
				if turns { // the peer probes, and then it is this side's turn
					b.m.Requested(b.now, to(c.remote), false)
				} else {
					last = epoch.Add(b.sent[n-1].after)
				}
				for len(b.sent) == n && b.now.Sub(last) < 2*limit {
					b.run(step, true)
				}
				longest = max(longest, b.now.Sub(last))
				if off := (epoch.Add(b.sent[n].after).Sub(o.Epoch)) % Beat; beats && off != 0 {
					t.Fatalf("keepalive %v to %v: an idle path is probed %v after a beat", c.keepalive, c.remote, off)
				}
				b.run(2*rtt, true)
			}
			if longest > limit+rtt+step || longest < limit*4/5 || len(b.sent) == before {
				t.Errorf("keepalive %v to %v, turns %v, beats %v: rests for up to %v, want %v", c.keepalive, c.remote, turns, beats, longest, limit)
			}
		}
	}
}

// A machine rests if it is idle and all is well; any change of that ends the rest at once.
func TestResting(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(b *bench)
		rests bool
	}{
		{"idle", func(*bench) {}, true},
		{"the peer asks", func(b *bench) { b.m.Requested(b.now, to(direct1), false) }, true},
		{"the peer asks by another way", func(b *bench) {
			b.m.Requested(b.now, to(direct1), false)
			b.m.Requested(b.now.Add(3*time.Second), to(direct2), false)
			b.m.Poll(b.now.Add(3 * time.Second)) // probes there, too
		}, true}, // of the selected path only; the pathfinder knows on which path it came
		{"the peer was restarted", func(b *bench) { b.m.Requested(b.now, to(direct1), true) }, false},
		{"traffic", func(b *bench) { b.m.Traffic(b.now) }, false},
		{"silence", func(b *bench) { b.m.Silent(b.now) }, false},
		{"other addresses", func(b *bench) { b.m.NetworkChanged(b.now) }, false},
		{"suspended", func(b *bench) { b.m.Requested(b.now.Add(time.Hour), to(direct1), false) }, false},
		{"a probe is on its way", func(b *bench) {
			for n := len(b.sent); len(b.sent) == n; {
				b.now = b.poll()
			}
		}, false},
		{"deserted", func(b *bench) {
			given(b, Candidate{direct1, SourceAdvertised}, Candidate{direct2, SourceAdvertised})
			b.rtt[to(direct2)] = 30 * time.Millisecond
			b.run(2*time.Second, true)
			b.m.Deserted(b.now, to(direct1))
		}, false},
	} {
		b := newBench(t, true)
		b.rtt[to(direct1)] = 10 * time.Millisecond
		given(b, Candidate{direct1, SourceAdvertised})
		if b.m.Resting() {
			t.Fatalf("%s: rests without a path", c.name)
		}
		b.run(time.Minute)
		if b.m.Resting() {
			t.Fatalf("%s: rests with traffic", c.name)
		}
		b.run(5*time.Minute, true)
		c.after(b)
		if got := b.m.Resting(); got != c.rests {
			t.Errorf("%s: rests %v, want %v", c.name, got, c.rests)
		}
	}
}
