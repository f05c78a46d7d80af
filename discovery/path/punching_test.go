package path_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
)

// The runs of one pair differ in round trips, jitter, loss of up to 5 % each way, in which side
// proposes and when, and in what the sides know about their NATs.
func TestAThousandPunches(t *testing.T) {
	runs := uint64(1000)
	if raceDetector {
		runs = 8 // the race detector makes them ten times slower
	}
	for _, pair := range [][2]kind{{kinds[3], kinds[4]}, {kinds[4], kinds[4]}} {
		t.Run(pair[0].name+" and "+pair[1].name, func(t *testing.T) {
			t.Parallel()
			direct, quick, relayed, slowest := 0, 0, 0, time.Duration(0)
			for seed := range runs {
				kind, took, story := punches(t, seed, pair)
				switch kind {
				case path.KindDirect:
					direct++
					slowest = max(slowest, took)
					if took < 10*time.Second {
						quick++
					}
				case path.KindRelay:
					relayed++
					t.Logf("seed %d stays on the relay:\n%s", seed, story)
				default:
					t.Errorf("seed %d: no path:\n%s", seed, story)
				}
			}
			t.Logf("%d direct (%d in 10 s, the slowest in %v), %d relayed", direct, quick, slowest, relayed)
			if uint64(direct) < runs*99/100 {
				t.Errorf("%d of %d direct, want 99 %%", direct, runs)
			}
		})
	}
}

// punches runs one pair until both sides are on a direct path, for at most three minutes.
func punches(t *testing.T, seed uint64, pair [2]kind) (kind string, took time.Duration, story string) {
	inWorld(t, seed, -1, func(w *world) {
		var gs []*gateway
		for i, k := range pair {
			s := siteOf(k, i+1)
			s.blind = w.dice.IntN(2) == 0
			s.link = simnet.Conditions{
				Delay:  time.Duration(2+w.dice.IntN(80)) * time.Millisecond,
				Jitter: time.Duration(w.dice.IntN(20)) * time.Millisecond,
				Loss:   w.dice.Float64() * 0.05,
			}
			gs = append(gs, w.gateway(fmt.Sprintf("g%d", i), s, (seed%2 == 0) == (i == 0)))
		}
		time.Sleep(time.Duration(w.dice.IntN(1000)) * time.Millisecond)
		w.meet(gs[0], gs[1])
		took, _ = w.until(3*time.Minute, bothAre(path.KindDirect, gs...))
		time.Sleep(2 * time.Second)
		kind = path.KindNone
		for _, k := range []string{path.KindDirect, path.KindRelay} {
			if bothAre(k, gs...)() {
				kind = k
			}
		}
		if kind != path.KindDirect {
			story = explain(gs...)
		}
	})
	return kind, took, story
}

// naive is a gateway without coordination: as soon as it has the peer's address it sends there,
// until it is answered.
func naive(w *world, a, b *gateway, skew, limit time.Duration) bool {
	hello := packet(kWhoAmI, probeSize, 0)
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		for i, g := range []*gateway{a, b} {
			other := []*gateway{b, a}[i]
			_, _ = g.conn.WriteToUDPAddrPort(hello, other.publicAddr())
			if i == 0 {
				time.Sleep(skew)
			}
		}
		time.Sleep(500 * time.Millisecond)
		if a.strangers.Load() > 0 && b.strangers.Load() > 0 {
			return true
		}
	}
	return false
}

func TestAPoisonedNAT(t *testing.T) {
	poisonable := kinds[4]
	t.Run("naive retries fail for ever", func(t *testing.T) {
		inWorld(t, 1, 2000, func(w *world) {
			a, b := w.gateway("a", siteOf(poisonable, 1), true), w.gateway("b", siteOf(poisonable, 2), false)
			time.Sleep(300 * time.Millisecond)
			if naive(w, a, b, 250*time.Millisecond, 10*time.Minute) {
				w.t.Error("the naive procedure connected: the NAT was not poisoned")
			}
		})
	})
	t.Run("silence heals", func(t *testing.T) {
		inWorld(t, 1, 2000, func(w *world) {
			a, b := w.gateway("a", siteOf(poisonable, 1), true), w.gateway("b", siteOf(poisonable, 2), false)
			time.Sleep(300 * time.Millisecond)
			naive(w, a, b, 250*time.Millisecond, 3*time.Second)
			w.meet(a, b)
			took, ok := w.until(time.Minute, bothAre(path.KindDirect, a, b))
			if !ok {
				w.t.Fatalf("not direct a minute after both NATs were poisoned\n%s", explain(a, b))
			}
			if took < 30*time.Second {
				w.t.Errorf("direct after %v: the NATs were not poisoned, since they remember for 30 s", took)
			}
			w.t.Logf("direct after %v", took)
		})
	})
	t.Run("openers that die before our own NAT cost attempts, not the path", func(t *testing.T) {
		inWorld(t, 1, 2000, func(w *world) {
			sa := siteOf(poisonable, 1)
			a, b := w.gateway("a", sa, true), w.gateway("b", siteOf(poisonable, 2), false)
			c := a.host.Link().Conditions(simnet.Up)
			c.Hops = 2 // the NAT is the third hop: TTL 2 does not cross it, 4 does
			if err := a.host.Link().SetConditions(simnet.Up, c); err != nil {
				w.t.Fatal(err)
			}
			up := a.nat.Link().Conditions(simnet.Up)
			up.Hops = 3 // as the internet has
			if err := a.nat.Link().SetConditions(simnet.Up, up); err != nil {
				w.t.Fatal(err)
			}
			for _, s := range w.servers { // the go-ahead arrives later than what it announces
				for _, way := range []simnet.Direction{simnet.Up, simnet.Down} {
					if err := s.host.Link().SetConditions(way, simnet.Conditions{Delay: 100 * time.Millisecond}); err != nil {
						w.t.Fatal(err)
					}
				}
			}
			w.meet(a, b)
			took, ok := w.until(10*time.Minute, bothAre(path.KindDirect, a, b))
			if !ok {
				w.t.Fatalf("not direct after ten minutes\n%s", explain(a, b))
			}
			if took < 36*time.Second {
				w.t.Errorf("direct after %v: the openers were good at once", took)
			}
			w.t.Logf("direct after %v", took)
		})
	})
}
