package netstack

import (
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// reading feeds rounds of reads to a rightSizing, each a round trip long, and returns the largest
// buffer that it wanted.
func reading(roundTrip time.Duration, rounds ...int) int {
	r := newRightSizing(1000, plainRounds)
	now, most := r.begun, 0
	for _, n := range rounds {
		for range 10 {
			now = now.Add(roundTrip / 10)
			most = max(most, r.after(n/10, now, func() time.Duration { return roundTrip }))
		}
	}
	return most
}

func TestRightSizing(t *testing.T) {
	const rtt = 50 * time.Millisecond
	for name, test := range map[string]struct {
		rounds      []int
		least, most int
	}{
		"nothing read":                {[]int{0, 0, 0}, 0, 0},
		"no more than a first window": {[]int{5_000, 10_000, 10_000}, 0, 0},
		"a steady rate":               {[]int{20_000, 20_000, 20_000}, 2 * 20_000, 200_000},
		"a slow start":                {[]int{20_000, 40_000, 80_000, 160_000}, 4 * 160_000, 7 * 160_000},
		"a rate that falls":           {[]int{200_000, 100_000, 50_000}, 2 * 200_000, 7 * 200_000},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reading(rtt, test.rounds...); got < test.least || got > test.most {
				t.Errorf("wants a buffer of %d bytes, want %d to %d", got, test.least, test.most)
			}
		})
	}
	if got := reading(rtt, 1<<30, 1<<30); got > 1<<30 {
		t.Errorf("wants a buffer of %d bytes, want no more than can be announced", got)
	}
}

// A round trip that is not known, or too short to be measured, still lets the buffer grow.
func TestRightSizingOfAnUnknownRoundTrip(t *testing.T) {
	r := newRightSizing(1000, plainRounds)
	asked := 0
	unknown := func() time.Duration { asked++; return 0 }
	if got := r.after(50_000, r.begun.Add(leastRound/2), unknown); got != 0 || asked > 0 {
		t.Errorf("within %v: wants %d bytes and asked %d times, want neither", leastRound, got, asked)
	}
	if got := r.after(50_000, r.begun.Add(leastRound), unknown); got < 200_000 {
		t.Errorf("wants %d bytes after 100,000 were read, want at least twice as much", got)
	}
}

// The scale in the SYN must allow for the largest window. gVisor announces no larger window later,
// however large the buffer has become. windowFloor relies on the scale too.
func TestWindowsAreScaledForTheLargestBuffer(t *testing.T) {
	const most = 8 << 20
	want := newWindowFloor(Options{MTU: DefaultMTU, TCPReceiveBuffer: most}).scale
	var scales [2]atomic.Int32 // of the dialling side, of the accepting one
	watch := func(scale *atomic.Int32) func([]byte) bool {
		scale.Store(-1)
		return func(packet []byte) bool {
			if tcp, _ := tcpOf(packet); tcp[tcpFlags]&flagSYN != 0 {
				options := header.ParseSynOptions(tcp[tcpHeaderLen:int(tcp[tcpDataOffset]>>4)*4], false)
				scale.Store(int32(options.WS))
			}
			return true
		}
	}
	p := newPair(t, Options{TCPReceiveBuffer: most}, Options{TCPReceiveBuffer: most}, impairment{there: watch(&scales[0]), back: watch(&scales[1])})
	p.connect(t, b6)
	for i, side := range []string{"dialling", "accepting"} {
		if got := int(scales[i].Load()); got != want {
			t.Errorf("the %s side scales its windows by %d bits, want %d", side, got, want)
		}
	}
}
