package probe

import (
	"math/rand/v2"
	"testing"
)

// The oracle stores every counter ever seen.
func TestWindowAgreesWithAnOracle(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var w window
		seen, top := make(map[uint64]bool), uint64(0)
		for range 5000 {
			n := top - min(top, rng.Uint64N(2*windowSize))
			switch rng.IntN(100) {
			case 0:
				n = top + rng.Uint64N(3*windowSize)
			case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
				n = top + rng.Uint64N(4)
			}
			wantFresh := !seen[n] && n+windowSize > top
			wantNewest := wantFresh && n > top
			fresh, newest := w.take(n)
			if fresh != wantFresh || newest != wantNewest {
				t.Fatalf("seed %d: counter %d after %d: %v, %v; want %v, %v", seed, n, top, fresh, newest, wantFresh, wantNewest)
			}
			seen[n] = true
			top = max(top, n)
		}
	}
}

func TestWindowAtTheLargestCounter(t *testing.T) {
	var w window
	for _, n := range []uint64{1, maxCounter - 1, maxCounter} {
		if fresh, newest := w.take(n); !fresh || !newest {
			t.Errorf("counter %d: %v, %v, want it to be fresh and newest", n, fresh, newest)
		}
	}
	for _, n := range []uint64{maxCounter, maxCounter - 1, 1} {
		if fresh, _ := w.take(n); fresh {
			t.Errorf("counter %d counts twice", n)
		}
	}
}
