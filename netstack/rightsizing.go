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

// rightSizing decides how large a connection's receive buffer should be: twice of what is
// read in a round trip, and as much more as that grows from one to the next, since a sender
// in slow start doubles it (Fisk and Feng, "Dynamic Right-Sizing in TCP", 2001). gVisor has
// the same, but grows the buffer before anybody can ask whether there is room for it: taken
// back a moment later, it could hold more than its size by then, and gVisor would drop the
// segment that fills a gap for ever. It is used by one reader at a time.
type rightSizing struct {
	mss    int       // bytes
	begun  time.Time // the present round trip
	read   int       // in it, in bytes
	before int       // the most that was read in one, in bytes
}

func newRightSizing(mss int) rightSizing {
	return rightSizing{mss: mss, begun: time.Now(), before: initialWindow * mss}
}

// after takes in that n bytes were read, and gives how large the buffer should be, in bytes;
// 0 says nothing. roundTrip is asked rarely.
func (r *rightSizing) after(n int, now time.Time, roundTrip func() time.Duration) int {
	r.read += n
	took := now.Sub(r.begun)
	if took < leastRound || took < roundTrip() {
		return 0
	}
	read := r.read
	r.begun, r.read = now, 0
	if read <= r.before {
		return 0
	}
	growth := min(float64(read-r.before)/float64(r.before), 1) // what slow start does
	r.before = read
	window := float64(2*int64(read) + int64(spareSegments*r.mss))
	return int(min(window*(1+2*growth), 1<<30))
}
