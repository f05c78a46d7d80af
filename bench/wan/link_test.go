package wan

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// arrival is a packet that a link has delivered.
type arrival struct {
	number int
	at     time.Duration
}

// packet is one of a size that carries its number.
func packet(number, size int) []byte {
	b := bytes.Repeat([]byte{byte(number)}, max(size, 4))
	b[0], b[1], b[2] = byte(number>>16), byte(number>>8), byte(number)
	return b
}

// drain takes what is due up to a time, each packet at the moment it is due.
func drain(t *testing.T, l *Link, until time.Duration) []arrival {
	t.Helper()
	var out []arrival
	for {
		due, ok := l.Next()
		if !ok || due > until {
			return out
		}
		packets, size := l.Take(due)
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
	l, err := NewLink(p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const forever = time.Duration(math.MaxInt64)

func TestALonePacketTakesHalfARoundTripAndItsTransmission(t *testing.T) {
	l := newLink(t, Path{RTT: 40 * time.Millisecond, Rate: 20e6})
	l.Offer(time.Second, packet(1, 972)) // 1,000 bytes on the wire: 400 µs at 20 Mbit/s.
	got := drain(t, l, forever)
	if want := time.Second + 20*time.Millisecond + 400*time.Microsecond; len(got) != 1 || got[0].at != want {
		t.Errorf("got %v, want packet 1 at %s", got, want)
	}
}

func TestPacketsLeaveAtTheRate(t *testing.T) {
	const n, size = 1000, 1222 // 1,250 bytes on the wire: 10 µs at 1 Gbit/s.
	l := newLink(t, Path{Rate: 1e9, Queue: n * (size + headers)})
	for i := range n {
		l.Offer(0, packet(i, size))
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
	l := newLink(t, Path{Rate: 1e9, Queue: 10 * (size + headers)})
	for i := range 15 {
		l.Offer(0, packet(i, size))
	}
	l.Offer(30*time.Microsecond, packet(15, size)) // Three have left.
	l.Offer(30*time.Microsecond, packet(16, size))
	got := drain(t, l, forever)
	if c := l.Counters(); len(got) != 12 || c.Overflow != 5 || c.Forwarded != 12 || c.Bytes != 12*size {
		t.Errorf("got %d packets, counters %+v; want 10 and 2 more, 5 too many", len(got), c)
	}
	if got[10].number != 15 {
		t.Errorf("after the queue had room: got packet %d, want 15", got[10].number)
	}
}

func TestLossIsByPacketAndRepeats(t *testing.T) {
	const n, loss = 20_000, 0.01
	lost := func(seed uint64, gap time.Duration) map[int]bool {
		l := newLink(t, Path{Rate: 1e9, Loss: loss, Queue: 1 << 30, Seed: seed})
		for i := range n {
			l.Offer(time.Duration(i)*gap, packet(i, 40))
		}
		out := make(map[int]bool)
		for i := range n {
			out[i] = true
		}
		for _, a := range drain(t, l, forever) {
			delete(out, a.number)
		}
		if c := l.Counters(); int(c.Lost) != len(out) {
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

// TestLinkAgainstAnOracle compares with a model that keeps every packet's times in a list,
// for random sizes and arrivals.
func TestLinkAgainstAnOracle(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 7))
		p := Path{RTT: 10 * time.Millisecond, Rate: 8e6, Queue: 20_000} // 1 µs a byte.
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
			l.Offer(now, packet(i, size))
			unsent := 0.0
			for _, w := range line {
				switch {
				case w.begin >= now:
					unsent += float64(w.bytes)
				case w.end > now:
					unsent += float64(w.end-now) / float64(time.Microsecond)
				}
			}
			if unsent+float64(size+headers) > float64(p.Queue) {
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

// What leaves together must be what one UDP_SEGMENT call takes.
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
				l.Offer(0, packet(i, size))
			}
			for _, want := range c.want {
				packets, size := l.Take(time.Second)
				if got := [2]int{len(packets), size}; got != want {
					t.Errorf("got %d bytes in segments of %d, want %d of %d", got[0], got[1], want[0], want[1])
				}
			}
			if packets, _ := l.Take(forever); len(packets) > 0 {
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
		l.Offer(forever/2, packet(i, 1400))
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
		bytes int
		delay time.Duration
	}{
		{Path{RTT: 200 * time.Millisecond, Rate: 1e9}, 25e6, 200 * time.Millisecond},
		{Path{RTT: time.Millisecond, Rate: 1e9}, 262_144, 2_097_152 * time.Nanosecond},
		{Path{RTT: 40 * time.Millisecond, Rate: 20e6, Queue: 100_000}, 100_000, 40 * time.Millisecond},
	} {
		if got := c.path.QueueBytes(); got != c.bytes {
			t.Errorf("%+v: a queue of %d bytes, want %d", c.path, got, c.bytes)
		}
		if got := c.path.QueueDelay(); got != c.delay {
			t.Errorf("%+v: a full queue waits %s, want %s", c.path, got, c.delay)
		}
	}
}

func TestPathsThatMakeNoSense(t *testing.T) {
	for _, p := range []Path{{}, {Rate: -1}, {Rate: 1, Loss: 1}, {Rate: 1, Loss: -0.1}, {Rate: 1, RTT: -1}, {Rate: 1, Queue: -1}} {
		if _, err := NewLink(p); err == nil {
			t.Errorf("%+v: got no error", p)
		}
	}
}
