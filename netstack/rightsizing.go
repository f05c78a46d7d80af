package netstack

import "time"

const (
	// initialWindow is what a sender may begin with, in packets (RFC 6928).
	initialWindow = 10
	// spareSegments is what a window has for packets that come unevenly, beyond what was read.
	spareSegments = 16
	// leastRound is the least that is taken for a round trip. What gVisor measured, at the
	// handshake, knows nothing of the queues of a busy tunnel: 2 MB at 5 Gbit/s are 3 ms. And
	// asking for it costs as much as some packets.
	leastRound = 5 * time.Millisecond
)

// plainRounds and gapRounds are how many round trips' worth of what arrives a buffer is for, of
// which gVisor announces half. Where gaps are to be expected, a segment that is lost twice holds
// up for two more round trips what can be read, and the window with it.
const plainRounds, gapRounds = 2, 6

// rightSizing decides how large a connection's receive buffer should be: enough for some round
// trips of what arrives, and as much more as that grows from one to the next, since a sender
// in slow start doubles it (Fisk and Feng, "Dynamic Right-Sizing in TCP", 2001). gVisor has
// the same, but grows the buffer before anybody can ask whether there is room for it: taken
// back a moment later, it could hold more than its size by then, and gVisor would drop the
// segment that fills a gap for ever. It is used by one reader at a time.
type rightSizing struct {
	mss    int       // bytes
	rounds int       // that the buffer is for
	begun  time.Time // the present round trip
	came   int       // in it, in bytes
	before int       // the most that came in one, in bytes
}

func newRightSizing(mss, rounds int) rightSizing {
	return rightSizing{mss: mss, rounds: rounds, begun: time.Now(), before: initialWindow * mss}
}

// after takes in that n bytes came, and gives how large the buffer should be, in bytes;
// 0 says nothing. roundTrip is asked rarely.
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
	came := int(float64(r.came) * float64(round) / float64(took)) // A gap may have held up the reader for longer.
	r.begun, r.came = now, 0
	if came <= r.before {
		return 0
	}
	growth := min(float64(came-r.before)/float64(r.before), 1) // what slow start does
	r.before = came
	window := float64(r.rounds*came + spareSegments*r.mss)
	return int(min(window*(1+2*growth), 1<<30))
}
