package underlay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// onOneProcessor pins the test's goroutine to one processor: loopback may reorder datagrams that
// a thread sends from different processors.
func onOneProcessor(t *testing.T) {
	runtime.LockOSThread() // never undone: the thread ends with the test's goroutine
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for i := 0; one.Count() == 0; i++ {
		if all.IsSet(i) {
			one.Set(i)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
}

// ordered sends data of several sessions and checks that each arrives in order.
type ordered struct {
	*running
	from *Bind
	to   conn.Endpoint
	next []uint64 // counters, by session
	last map[uint32]int64
}

func newOrdered(t *testing.T, sessions int) *ordered {
	from := start(t, New(Options{}))
	o := &ordered{running: start(t, newSpread(Options{})), from: from.Bind, next: make([]uint64, sessions), last: make(map[uint32]int64)}
	var err error
	if o.to, err = from.ParseEndpoint(o.addr().String()); err != nil {
		t.Fatal(err)
	}
	for s := range sessions {
		o.send(t, s, 1, false)
	}
	o.expect(t, sessions)
	return o
}

// send sends a run of a session, or drops it.
func (o *ordered) send(t *testing.T, session, datagrams int, lost bool) {
	t.Helper()
	var run [][]byte
	for range datagrams {
		run = append(run, numbered(uint32(session), o.next[session], 100))
		o.next[session]++
	}
	if lost {
		return
	}
	if err := o.from.Send(run, o.to); err != nil {
		t.Fatal(err)
	}
}

// expect receives datagrams, and fails if one arrives after a later one.
func (o *ordered) expect(t *testing.T, datagrams int) {
	t.Helper()
	for range datagrams {
		got := o.running.next(t).data
		session, counter := binary.LittleEndian.Uint32(got[4:]), int64(binary.LittleEndian.Uint64(got[8:]))
		if last, seen := o.last[session]; seen && counter <= last {
			t.Fatalf("session %d: %d came after %d", session, counter, last)
		}
		o.last[session] = counter
	}
}

// Without losses each session is delivered in order. With a single session, losses do not matter.
func TestSpreadKeepsTheOrder(t *testing.T) {
	for name, test := range map[string]struct {
		sessions int
		loss     float64 // of runs
	}{
		"one session":             {1, 0},
		"one session with losses": {1, 0.1},
		"three sessions":          {3, 0},
		"a hundred and one":       {101, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onOneProcessor(t)
			o, rng := newOrdered(t, test.sessions), rand.New(rand.NewPCG(1, 2))
			for range 100 {
				sent := 0
				for range 30 { // at most 44 × 30 × 100 bytes, which fit one socket's buffer
					session, run, lost := rng.IntN(test.sessions), 1+rng.IntN(44), rng.Float64() < test.loss
					if o.send(t, session, run, lost); !lost {
						sent += run
					}
				}
				o.expect(t, sent)
			}
			if drops := o.Observations().SocketDrops; drops != 0 {
				t.Errorf("got %d drops, want none", drops)
			}
		})
	}
}

// With many sessions losses may break the order, but no datagram is lost.
func TestSpreadDeliversAllInSpiteOfLosses(t *testing.T) {
	o, rng := newOrdered(t, 40), rand.New(rand.NewPCG(1, 2))
	for range 100 {
		sent := 0
		for range 30 {
			run, lost := 1+rng.IntN(44), rng.IntN(4) == 0
			if o.send(t, rng.IntN(40), run, lost); !lost {
				sent += run
			}
		}
		for range sent {
			o.running.next(t)
		}
	}
}

// stalled is an open bind that only the test reads.
type stalled struct {
	receive conn.ReceiveFunc
	spread  *spread
	at      netip.AddrPort
	from    *net.UDPConn
	queued  []uint32
}

func newStalled(t *testing.T) *stalled {
	bind := newSpread(Options{})
	fns, port, err := bind.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bind.Close(); err != nil {
			t.Error(err)
		}
	})
	return &stalled{
		receive: fns[0], spread: leanOf(bind).v4.Load().spread, at: netip.AddrPortFrom(loopback4, port),
		from: plain(t, loopback4), queued: make([]uint32, maxLanes),
	}
}

// send sends a datagram and waits until it has arrived.
func (s *stalled) send(t *testing.T, b []byte) {
	t.Helper()
	write(t, s.from, b, s.at)
	_, s.queued = queued(t, s.spread, s.queued)
}

// take returns a batch.
func (s *stalled) take(t *testing.T) (all [][]byte) {
	t.Helper()
	bufs, sizes, eps := make([][]byte, leanBatch), make([]int, leanBatch), make([]conn.Endpoint, leanBatch)
	for i := range bufs {
		bufs[i] = make([]byte, 2000)
	}
	n, err := s.receive(bufs, sizes, eps)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		all = append(all, bufs[i][:sizes[i]])
	}
	for i, l := range s.spread.lanes {
		m, err := memoryOf(l.fd)
		if err != nil {
			t.Fatal(err)
		}
		s.queued[i] = m.queued
	}
	return all
}

// After losses two sessions may wait for each other. Neither may wait for ever.
func TestSessionsDoNotBlockEachOther(t *testing.T) {
	s := newStalled(t)
	for session := range uint32(2) {
		s.send(t, numbered(session, 0, 32))
	}
	for got := 0; got < 2; {
		got += len(s.take(t))
	}
	s.send(t, numbered(0, 3<<6, 32))
	s.send(t, numbered(1, 10<<6, 32))
	if got := s.take(t); len(got) != 2 || got[0][4] != 1 || got[1][4] != 0 {
		t.Errorf("got %x, want one datagram of each session, first that of socket 2, which was read first", got)
	}
}

// A flood of one socket leaves the others their turns.
func TestFloodOfOneSocketLeavesTheOthersTheirTurn(t *testing.T) {
	s := newStalled(t)
	for n := range uint32(4 * laneTurn) {
		s.send(t, initiation(n))
	}
	s.send(t, numbered(1, 3<<6, 32))
	for before := 0; before <= laneTurn; {
		for _, got := range s.take(t) {
			if got[0] == typeData {
				return
			}
			before++
		}
	}
	t.Errorf("more than %d datagrams came first", laneTurn)
}

// A lane that waits for lost datagrams continues, although a stranger's flood never leaves the
// socket empty on which they would have arrived.
func TestFloodDoesNotHoldUpWhatWaitsForLosses(t *testing.T) {
	s := newStalled(t)
	s.send(t, numbered(1, 62, 32))
	if got := s.take(t); len(got) != 1 {
		t.Fatalf("got %d datagrams, want the session's first", len(got))
	}
	n := uint32(0)
	flood := func(datagrams int) {
		for range datagrams {
			s.send(t, initiation(n))
			n++
		}
	}
	flood(2 * leanBatch)
	s.send(t, numbered(1, 64, 32)) // 63 is lost
	for before := 0; before <= longestWait+2*leanBatch; {
		got := s.take(t)
		if slices.ContainsFunc(got, func(b []byte) bool { return b[0] == typeData }) {
			return
		}
		before += len(got)
		flood(len(got))
	}
	t.Errorf("more than %d datagrams of strangers came first", longestWait)
}

// The sender decides what a lane holds, and into how many datagrams it is cut.
func FuzzLane(f *testing.F) {
	f.Add(numbered(1, 64, 32), 32)
	f.Add(bytes.Repeat(numbered(1, 64, 48), 3), 48)
	f.Add(initiation(1), 7)
	f.Fuzz(func(t *testing.T, rest []byte, segment int) {
		if len(rest) == 0 || segment <= 0 { // accept returns neither
			return
		}
		l := &lane{receiver: &receiver{rest: rest, segment: segment}}
		l.classify()
		if Classify(rest) == WireGuard && rest[0] == typeData && !l.data {
			t.Errorf("%x was not taken for data", rest)
		}
		if l.data && !bytes.Contains(rest, binary.LittleEndian.AppendUint64(nil, l.last)) {
			t.Errorf("counter %d is not in %x", l.last, rest)
		}
	})
}
