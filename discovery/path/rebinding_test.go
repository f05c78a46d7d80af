package path_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
)

// A NAT that forgets its mappings gives the gateway behind it another port in the middle of a
// stream. Only the peer can notice, by the source of the gateway's packets.
func TestANATThatRebindsAgainAndAgain(t *testing.T) {
	const every, least = 10 * time.Second, 20
	anywhere := func(b *simnet.Behaviour) { b.Ports = simnet.RandomPorts }
	for _, k := range kinds[1:] {
		for name, jitter := range map[string]time.Duration{"": 0, " and jitter": 20 * time.Millisecond} {
			t.Run(k.name+name, func(t *testing.T) {
				inWorld(t, 5, 0, func(w *world) {
					at := siteOf(k, 1)
					at.tune, at.link.Jitter = anywhere, jitter
					a, b := connected(w, at, siteOf(kinds[0], 2))
					var longest time.Duration
					for range least {
						began := time.Now()
						a.nat.Reboot()
						time.Sleep(every)
						longest = max(longest, a.gap(began), b.gap(began))
					}
					w.t.Logf("at most %v without data", longest)
					if longest > 1500*time.Millisecond {
						w.t.Errorf("%v without data\n%s", longest, explain(a, b))
					}
					if !bothAre(path.KindDirect, a, b)() {
						w.t.Errorf("not direct\n%s", explain(a, b))
					}
				})
			})
		}
	}
}
