package wan

import "math/rand/v2"

// losses decides which packets get lost, only by their numbers.
//
// Losses in bursts follow Gilbert's model (Gilbert, "Capacity of a Burst-Noise Channel", 1960;
// Elliott adds losses in the good state, which are not used here): a Markov chain of two states,
// with a transition for each packet. The bad state loses all packets. The mean burst is 1/leave,
// and enter/(enter+leave) of the packets get lost.
type losses struct {
	random *rand.Rand
	loss   float64 // of packets that are lost singly

	bursts       bool
	enter, leave float64 // transition probabilities of the bad state
	bad          bool
}

func newLosses(p Path) losses {
	l := losses{random: rand.New(rand.NewPCG(p.Seed, 0)), loss: p.Loss, bursts: p.Burst > 0}
	if l.bursts {
		l.leave = 1 / p.Burst
		l.enter = l.leave * p.Loss / (1 - p.Loss)
	}
	return l
}

// next reports whether the next packet gets lost.
func (l *losses) next() bool {
	chance := l.random.Float64()
	if !l.bursts {
		return chance < l.loss
	}
	if l.bad {
		l.bad = chance >= l.leave
	} else {
		l.bad = chance < l.enter
	}
	return l.bad
}
