package wan

import (
	"math/rand/v2"
	"slices"
	"time"
)

// jitterHold is how long packets have the same delay: a radio's scheduler serves a station every
// few milliseconds, and an LTE frame takes 10 (3GPP TS 36.211, section 4).
const jitterHold = 10 * time.Millisecond

// jitter is a delay that only depends on time: a random value from 0 to most for each period.
// When it decreases, packets would overtake earlier ones. The link keeps the order, so they
// arrive together.
type jitter struct {
	seed   uint64
	most   time.Duration
	period uint64
	delay  time.Duration // in the period
}

func (j *jitter) at(t time.Duration) time.Duration {
	if j.most == 0 {
		return 0
	}
	if period := uint64(t/jitterHold) + 1; period != j.period {
		j.period = period
		j.delay = time.Duration(rand.New(rand.NewPCG(j.seed, period)).Int64N(int64(j.most) + 1))
	}
	return j.delay
}

// strays are the few packets that have fallen behind, sorted by due time.
type strays struct {
	random *rand.Rand
	chance float64
	most   time.Duration // the maximum additional delay
	all    []stray
}

type stray struct {
	due    time.Duration
	tunnel int
	packet []byte
}

func newStrays(p Path) strays {
	return strays{random: rand.New(rand.NewPCG(p.Seed, 1)), chance: p.Reorder, most: p.ReorderBy}
}

// next returns the next packet's additional delay, 0 if it does not fall behind.
func (s *strays) next() time.Duration {
	if s.chance == 0 || s.random.Float64() >= s.chance {
		return 0
	}
	return 1 + time.Duration(s.random.Int64N(int64(s.most)))
}

// push stores a copy of a packet.
func (s *strays) push(packet []byte, tunnel int, due time.Duration) {
	i, _ := slices.BinarySearchFunc(s.all, due, func(one stray, due time.Duration) int {
		if one.due <= due {
			return -1
		}
		return 1
	})
	s.all = slices.Insert(s.all, i, stray{due, tunnel, slices.Clone(packet)})
}

// due returns when the first packet is due.
func (s *strays) due() (time.Duration, bool) {
	if len(s.all) == 0 {
		return 0, false
	}
	return s.all[0].due, true
}

// pop removes the first packet.
func (s *strays) pop() stray {
	first := s.all[0]
	s.all = slices.Delete(s.all, 0, 1)
	return first
}
