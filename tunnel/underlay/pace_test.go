package underlay

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Whole and half intervals between events test the exact bounds.
func TestPaceAgainstAnOracle(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		interval, burst := time.Duration(2+2*r.IntN(5)), 1+r.IntN(4)
		p, o := pace{interval: interval, burst: burst}, past{interval: interval, burst: burst}
		now := time.Unix(1000, 0)
		for range 400 {
			if r.IntN(2) == 0 {
				now = now.Add(time.Duration(r.IntN(4)) * interval / 2)
			}
			if got, want := p.take(now), o.take(now); got != want {
				t.Fatalf("seed %d: one in %v and %d at once, after %d passed: got %v, want %v", seed, interval, burst, len(o.at), got, want)
			}
		}
	}
}
