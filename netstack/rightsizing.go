package netstack

import "time"

const (
	// initialWindow is a sender's initial window, in packets (RFC 6928).
	initialWindow = 10
	// spareSegments is a window's allowance for packets that arrive unevenly, beyond what was read.
	spareSegments = 16
	// leastRound is the minimum for a round trip. gVisor's measurement, from the handshake, does
	// not include the queues of a busy tunnel: 2 MB at 5 Gbit/s are 3 ms. And asking for it costs
	// as much as some packets.
	leastRound = 5 * time.Millisecond
)

// plainRounds and gapRounds are how many round trips' worth of arriving data a buffer holds; gVisor
// announces half of that. Where gaps are likely, a segment that is lost twice delays reading, and
// the window, by two more round trips.
const plainRounds, gapRounds = 2, 6

// rightSizing decides how large a connection's receive buffer should be: enough for some round
// trips of arriving data, and as much more as that grows from one to the next, since a sender in
// slow start doubles it (Fisk and Feng, "Dynamic Right-Sizing in TCP", 2001). gVisor does the same,
// but grows the buffer before anyone can ask whether there is room. If the growth were undone a
// moment later, the buffer could already hold more than its size, and gVisor would for ever drop
// the segment that fills a gap. One reader at a time uses it.
type rightSizing struct {
	mss    int       // bytes
	rounds int       // the round trips that the buffer holds
	begun  time.Time // start of the current round trip
	came   int       // arrived in it, in bytes
	before int       // the most that arrived in one, in bytes
}

func newRightSizing(mss, rounds int) rightSizing {
	return rightSizing{mss: mss, rounds: rounds, begun: time.Now(), before: initialWindow * mss}
}

// after records the arrival of n bytes, and returns how large the buffer should be, in bytes; 0 for
// no change. roundTrip is called rarely.
func (r *rightSizing) after(n int, now time.Time, roundTrip func() time.Duration) int {
	r.came += n
	took := now.Sub(r.begun)
	if took < leastRound {
		return 0
	}
	round := max(roundTrip(), leastRound)
	if took < round {
		return 0
	}
	came := int(float64(r.came) * float64(round) / float64(took)) // a gap may have delayed the reader
	r.begun, r.came = now, 0
	if came <= r.before {
		return 0
	}
	growth := min(float64(came-r.before)/float64(r.before), 1) // what slow start does
	r.before = came
	window := float64(r.rounds*came + spareSegments*r.mss)
	return int(min(window*(1+2*growth), 1<<30))
}
