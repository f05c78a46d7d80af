package path

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// A keepalive that was configured is the longest that an idle path rests, whoever asks next
// and over both families; the default may be exceeded by what its documentation says.
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
		for _, turns := range []bool{false, true} {
			b := newBench(t, true)
			b.m = New(Options{Low: true, Keepalive: c.keepalive, Rand: rand.New(rand.NewPCG(3, 4))})
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
				if turns { // The peer asks, and then it is for this side to ask.
					b.m.Requested(b.now, to(c.remote), false)
				} else {
					last = epoch.Add(b.sent[n-1].after)
				}
				for len(b.sent) == n && b.now.Sub(last) < 2*limit {
					b.run(step, true)
				}
				longest = max(longest, b.now.Sub(last))
				b.run(2*rtt, true)
			}
			if longest > limit+rtt+step || longest < limit*4/5 || len(b.sent) == before {
				t.Errorf("keepalive %v to %v, turns %v: rests for up to %v, want %v", c.keepalive, c.remote, turns, longest, limit)
			}
		}
	}
}
