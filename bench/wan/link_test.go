package wan

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// arrival is a packet delivered by a link.
type arrival struct {
	number int
	at     time.Duration
}

// packet returns a packet of a size that contains its number.
func packet(number, size int) []byte {
	b := bytes.Repeat([]byte{byte(number)}, max(size, 4))
	b[0], b[1], b[2] = byte(number>>16), byte(number>>8), byte(number)
	return b
}

// drain takes what is due up to a time, each packet when it is due.
func drain(t *testing.T, l *Link, until time.Duration) []arrival {
	t.Helper()
	var out []arrival
	for {
		due, ok := l.Next()
		if !ok || due > until {
			return out
		}
		packets, size, _ := l.Take(due)
		if len(packets) == 0 {
			t.Fatalf("nothing to take at %s, when the next packet is due", due)
		}
		for len(packets) > 0 {
			p := packets[:min(size, len(packets))]
			packets = packets[len(p):]
			number := int(p[0])<<16 | int(p[1])<<8 | int(p[2])
			if !bytes.Equal(p, packet(number, len(p))) {
				t.Fatalf("packet %d has changed on the way", number)
			}
			out = append(out, arrival{number, due})
		}
	}
}

func newLink(t *testing.T, p Path) *Link {
	t.Helper()
	l, err := NewLink(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const forever = time.Duration(math.MaxInt64)

func TestALonePacketTakesHalfARoundTripAndItsTransmission(t *testing.T) {
	l := newLink(t, Path{RTT: 40 * time.Millisecond, Rate: 20e6})
	l.Offer(time.Second, 0, packet(1, 972)) // 1,000 bytes on the wire: 400 µs at 20 Mbit/s.
	got := drain(t, l, forever)
	if want := time.Second + 20*time.Millisecond + 400*time.Microsecond; len(got) != 1 || got[0].at != want {
		t.Errorf("got %v, want packet 1 at %s", got, want)
	}
}

func TestPacketsLeaveAtTheRate(t *testing.T) {
	const n, size = 1000, 1222 // 1,250 bytes on the wire: 10 µs at 1 Gbit/s.
	l := newLink(t, Path{Rate: 1e9, Queue: n * 10 * time.Microsecond})
	for i := range n {
		l.Offer(0, 0, packet(i, size))
	}
	got := drain(t, l, forever)
	if len(got) != n {
		t.Fatalf("got %d packets of %d", len(got), n)
	}
	for i, a := range got {
		if want := time.Duration(i+1) * 10 * time.Microsecond; a.number != i || a.at != want {
			t.Fatalf("delivery %d: packet %d at %s, want at %s", i, a.number, a.at, want)
		}
	}
}

func TestTheQueueTakesJustWhatItHolds(t *testing.T) {
	const size = 1222
	l := newLink(t, Path{Rate: 1e9, Queue: 100 * time.Microsecond}) // 10 packets.
	for i := range 15 {
		l.Offer(0, 0, packet(i, size))
	}
	l.Offer(30*time.Microsecond, 0, packet(15, size)) // Three have left.
	l.Offer(30*time.Microsecond, 0, packet(16, size))
	got := drain(t, l, forever)
	if c := l.Counters()[0]; len(got) != 12 || c.Overflow != 5 || c.Forwarded != 12 || c.Bytes != 12*size {
		t.Errorf("got %d packets, counters %+v; want 12 packets and an overflow of 5", len(got), c)
	}
	if got[10].number != 15 {
		t.Errorf("after the queue had room: got packet %d, want 15", got[10].number)
	}
}

func TestLossIsByPacketAndRepeats(t *testing.T) {
	const n, loss = 20_000, 0.01
	lost := func(seed uint64, gap time.Duration) map[int]bool {
		l := newLink(t, Path{Rate: 1e9, Loss: loss, Queue: time.Hour, Seed: seed})
		for i := range n {
			l.Offer(time.Duration(i)*gap, 0, packet(i, 40))
		}
		out := make(map[int]bool)
		for i := range n {
			out[i] = true
		}
		for _, a := range drain(t, l, forever) {
			delete(out, a.number)
		}
		if c := l.Counters()[0]; int(c.Lost) != len(out) {
			t.Errorf("%d packets lost, %d counted", len(out), c.Lost)
		}
		return out
	}
	first, again, other := lost(1, 0), lost(1, time.Millisecond), lost(2, 0)
	if len(first) < 130 || len(first) > 270 { // The seeds are fixed; 5 standard deviations.
		t.Errorf("lost %d of %d packets, want about %g", len(first), n, n*loss)
	}
	for i := range first {
		if !again[i] {
			t.Fatalf("packet %d is lost when sent at once and not when sent later", i)
		}
	}
	same := 0
	for i := range first {
		if other[i] {
			same++
		}
	}
	if same > 20 {
		t.Errorf("%d of %d losses are the same with another seed", same, len(first))
	}
}

// TestLinkAgainstAnOracle compares with a model that stores each packet's times in a list, for
// random sizes and arrivals.
func TestLinkAgainstAnOracle(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 7))
		p := Path{RTT: 10 * time.Millisecond, Rate: 8e6, Queue: 20 * time.Millisecond} // 1 µs a byte, 20,000 of them.
		l := newLink(t, p)
		type waiting struct {
			begin, end time.Duration
			bytes      int
		}
		var (
			line      []waiting
			want, got []arrival
			now       time.Duration
		)
		for i := range 2000 {
			if random.IntN(10) == 0 {
				now += time.Duration(random.IntN(30_000)) * time.Microsecond
				got = append(got, drain(t, l, now)...)
			}
			size := 4 + random.IntN(1400)
			l.Offer(now, 0, packet(i, size))
			unsent := 0.0
			for _, w := range line {
				switch {
				case w.begin >= now:
					unsent += float64(w.bytes)
				case w.end > now:
					unsent += float64(w.end-now) / float64(time.Microsecond)
				}
			}
			if unsent+float64(size+headers) > p.Queue.Seconds()*1e6 {
				continue
			}
			begin := now
			if n := len(line); n > 0 {
				begin = max(begin, line[n-1].end)
			}
			end := begin + time.Duration(size+headers)*time.Microsecond
			line = append(line, waiting{begin, end, size + headers})
			want = append(want, arrival{i, end + p.RTT/2})
		}
		got = append(got, drain(t, l, forever)...)
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d packets delivered, want %d", seed, len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("seed %d: delivery %d: got packet %d at %s, want %d at %s", seed, i, got[i].number, got[i].at, want[i].number, want[i].at)
			}
		}
	}
}

// offer offers a link packets of a size at an interval, and returns those that arrive.
func offer(t *testing.T, l *Link, n, size int, every time.Duration) []arrival {
	t.Helper()
	var got []arrival
	for i := range n {
		now := time.Duration(i) * every
		got = append(got, drain(t, l, now)...)
		l.Offer(now, 0, packet(i, size))
	}
	return append(got, drain(t, l, forever)...)
}

func TestBurstsHaveTheirMeans(t *testing.T) {
	for _, c := range []struct{ loss, burst float64 }{{0.01, 8}, {0.05, 3}, {0.2, 1.5}, {0, 8}} {
		const n = 400_000
		l := newLink(t, Path{Rate: 1e9, Loss: c.loss, Burst: c.burst, Queue: time.Hour, Seed: 3})
		bursts, before := 0, -1
		for _, a := range append(offer(t, l, n, 4, time.Microsecond), arrival{number: n}) {
			if a.number > before+1 {
				bursts++
			}
			before = a.number
		}
		lost := float64(l.Counters()[0].Lost)
		if got := lost / n; math.Abs(got-c.loss) > 0.1*c.loss {
			t.Errorf("loss %g in bursts of %g: %g got lost", c.loss, c.burst, got)
		}
		if got := lost / float64(bursts); c.loss > 0 && math.Abs(got-c.burst) > 0.1*c.burst {
			t.Errorf("loss %g in bursts of %g: a mean burst has %g packets", c.loss, c.burst, got)
		}
	}
}

func TestJitterKeepsTheOrderAndIsBounded(t *testing.T) {
	const rtt, most = 40 * time.Millisecond, 30 * time.Millisecond
	l := newLink(t, Path{RTT: rtt, Rate: 1e9, Jitter: most, Seed: 5})
	var sorted []time.Duration
	for i, a := range offer(t, l, 20_000, 1222, time.Millisecond) {
		if a.number != i {
			t.Fatalf("packet %d came as the %dth", a.number, i+1)
		}
		sorted = append(sorted, a.at-time.Duration(i)*time.Millisecond)
	}
	slices.Sort(sorted)
	least, greatest := rtt/2, (rtt+most)/2+10*time.Microsecond
	if sorted[0] < least || sorted[0] > least+time.Millisecond || sorted[len(sorted)-1] > greatest || sorted[len(sorted)-1] < greatest-time.Millisecond {
		t.Errorf("delays of %s to %s, want %s to %s", sorted[0], sorted[len(sorted)-1], least, greatest)
	}
	if middle := sorted[len(sorted)/2]; middle < least+most/8 || middle > greatest-most/16 {
		t.Errorf("the median delay is %s", middle)
	}
	often, seldom := jitter{seed: 5, most: most}, jitter{seed: 5, most: most}
	for i := range 10_000 {
		at := time.Duration(i) * time.Millisecond
		if d := often.at(at); i%7 == 0 && d != seldom.at(at) {
			t.Fatalf("at %s: %s, and %s where packets are rare", at, d, seldom.at(at))
		}
	}
}

func TestSomeFallBehindAndTheOthersDoNotWait(t *testing.T) {
	const n, by = 20_000, 5 * time.Millisecond
	p := Path{RTT: 40 * time.Millisecond, Rate: 1e9, Reorder: 0.01, ReorderBy: by, Seed: 7}
	l := newLink(t, p)
	const every = 100 * time.Microsecond
	got := offer(t, l, n, 1222, every)
	if len(got) != n {
		t.Fatalf("%d of %d packets arrived", len(got), n)
	}
	behind := 0
	for i, a := range got {
		if i > 0 && a.at < got[i-1].at {
			t.Fatalf("packet %d arrived at %s, after one at %s", a.number, a.at, got[i-1].at)
		}
		plain := time.Duration(a.number)*every + p.RTT/2 + 10*time.Microsecond
		if a.at == plain {
			continue
		}
		behind++
		if a.at < plain || a.at > plain+by {
			t.Errorf("packet %d took %s longer, want up to %s", a.number, a.at-plain, by)
		}
	}
	if behind < 150 || behind > 250 { // The seed is fixed; 3.5 standard deviations.
		t.Errorf("%d of %d packets fell behind, want about 200", behind, n)
	}
}

func TestThePolicerPassesItsRateAndABurst(t *testing.T) {
	const size = 972 // 1,000 bytes on the wire: a millisecond at 8 Mbit/s.
	l := newLink(t, Path{Rate: 1e9, Police: 8e6, PoliceBurst: 10_000, Queue: time.Second})
	first := offer(t, l, 1, size, 0)
	for range 20 {
		l.Offer(0, 0, packet(1, size))
	}
	if got := len(first) + len(drain(t, l, forever)); got != 10 {
		t.Errorf("%d packets of 21 passed at once, want the 10 of the bucket", got)
	}
	l.Offer(3500*time.Microsecond, 0, packet(2, size))
	for range 5 {
		l.Offer(3500*time.Microsecond, 0, packet(2, size))
	}
	if got := len(drain(t, l, forever)); got != 3 {
		t.Errorf("%d packets passed after 3.5 ms, want 3", got)
	}
	for range 20 {
		l.Offer(time.Minute, 0, packet(3, size))
	}
	if got := len(drain(t, l, forever)); got != 10 {
		t.Errorf("%d packets passed after a minute, want the 10 of the bucket", got)
	}
	if c := l.Counters()[0]; c.Policed != 11+3+10 || c.Overflow != 0 {
		t.Errorf("got %+v, want 24 that the policer dropped", c)
	}
}

func TestTunnelsShareALinkAndNoRun(t *testing.T) {
	l, err := NewLink(Path{Rate: 1e9, Queue: 50 * time.Microsecond}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 { // five find room
		l.Offer(0, i/2%2, packet(i, 1222))
	}
	for _, want := range [][2]int{{2 * 1222, 0}, {2 * 1222, 1}, {1222, 0}} {
		packets, _, tunnel := l.Take(time.Second)
		if got := [2]int{len(packets), tunnel}; got != want {
			t.Errorf("got %d bytes of tunnel %d, want %d of %d", got[0], got[1], want[0], want[1])
		}
	}
	if c := l.Counters(); c[0].Forwarded != 3 || c[0].Overflow != 1 || c[1].Forwarded != 2 || c[1].Overflow != 0 {
		t.Errorf("got %+v, want 3 and 2, and one too many of the first", c)
	}
}

// The packets of one Take must be valid for one UDP_SEGMENT call.
func TestRunsAreWhatOneCallSends(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		want  [][2]int // bytes, segment
	}{
		{"one size", []int{100, 100, 100}, [][2]int{{300, 100}}},
		{"the last is shorter", []int{100, 100, 60, 100}, [][2]int{{260, 100}, {100, 100}}},
		{"a longer one begins again", []int{60, 100, 100}, [][2]int{{60, 60}, {200, 100}}},
		{"at most 64", repeated(70, 10), [][2]int{{640, 10}, {60, 10}}},
		{"at most 65,507 bytes", repeated(50, 1452), [][2]int{{45 * 1452, 1452}, {5 * 1452, 1452}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLink(t, Path{Rate: 1e9})
			for i, size := range c.sizes {
				l.Offer(0, 0, packet(i, size))
			}
			for _, want := range c.want {
				packets, size, _ := l.Take(time.Second)
				if got := [2]int{len(packets), size}; got != want {
					t.Errorf("got %d bytes in segments of %d, want %d of %d", got[0], got[1], want[0], want[1])
				}
			}
			if packets, _, _ := l.Take(forever); len(packets) > 0 {
				t.Errorf("%d bytes are left", len(packets))
			}
		})
	}
}

func repeated(n, size int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = size
	}
	return out
}

func TestMemoryIsUsedAgain(t *testing.T) {
	l := newLink(t, Path{Rate: 1e9})
	for i := range 20_000 { // 28 MB in all, 14 kB at a time.
		l.Offer(forever/2, 0, packet(i, 1400))
		if i%10 == 9 {
			l.free = 0
			drain(t, l, forever)
		}
	}
	if n := len(l.packets.blocks) + len(l.packets.spare); n > 3 {
		t.Errorf("%d blocks of memory for 14 kB in flight", n)
	}
}

func TestQueueOfAPath(t *testing.T) {
	for _, c := range []struct {
		path  Path
		delay time.Duration
	}{
		{Path{RTT: 200 * time.Millisecond, Rate: 1e9}, 200 * time.Millisecond},
		{Path{RTT: time.Millisecond, Rate: 1e9}, 2_097_152 * time.Nanosecond}, // 256 KiB
		{Path{RTT: 40 * time.Millisecond, Rate: 20e6, Queue: 10 * time.Millisecond}, 10 * time.Millisecond},
	} {
		if got := c.path.QueueDelay(); got != c.delay {
			t.Errorf("%+v: a full queue waits %s, want %s", c.path, got, c.delay)
		}
	}
}

func TestPathsThatMakeNoSense(t *testing.T) {
	for _, p := range []Path{
		{}, {Rate: -1}, {Rate: 1, BackRate: -1}, {Rate: 1, Loss: 1}, {Rate: 1, Loss: -0.1}, {Rate: 1, RTT: -1}, {Rate: 1, Queue: -1},
		{Rate: 1, Loss: 0.1, Burst: 0.5}, {Rate: 1, Loss: 0.9, Burst: 1}, {Rate: 1, Jitter: -1},
		{Rate: 1, Reorder: 2, ReorderBy: 1}, {Rate: 1, Reorder: 0.1}, {Rate: 1, ReorderBy: 1},
		{Rate: 1, Police: -1, PoliceBurst: 1}, {Rate: 1, Police: 1}, {Rate: 1, PoliceBurst: 1},
	} {
		if _, err := NewLink(p, 1); err == nil {
			t.Errorf("%+v: got no error", p)
		}
	}
}
