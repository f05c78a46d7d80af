package sender

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A radio link may lose many packets in a row before a rate is known. That does not mean that the
// rate has been found.
func TestBurstAtTheBeginning(t *testing.T) {
	p := simPath{rate: 400e6, rtt: 20 * ms, queue: 20 * ms, burst: 0.0025}
	worst := 1.0
	for seed := range uint64(12) {
		worst = min(worst, simulate(1+seed, p, "own", 2*time.Second, time.Second).utilisation(p))
	}
	if worst < 0.6 {
		t.Errorf("the least utilisation is %.2f, want 0.6", worst)
	}
}

func TestDispersion(t *testing.T) {
	const packets, rate = 500, 0.01
	for _, c := range []struct{ burst, least, most float64 }{
		{1, 1, 1.5},
		{8, 8, 2 * 8},
	} {
		rng := rand.New(rand.NewPCG(1, 1))
		var d dispersion
		bad := false
		for range 400 {
			lost := 0.0
			for range packets {
				if bad {
					bad = rng.Float64() >= 1/c.burst
				}
				bad = bad || rng.Float64() < rate/c.burst
				if bad {
					lost++
				}
			}
			d.add(lost, rate*packets)
		}
		if i := d.index(); i < c.least || i > c.most {
			t.Errorf("bursts of %.0f packets have an index of %.1f, want %.1f to %.1f", c.burst, i, c.least, c.most)
		}
	}
}
