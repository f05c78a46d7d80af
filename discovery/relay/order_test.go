package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
)

// Packets arrive at the server in the order in which they were sent, queued or not, and bypass an
// empty queue.
func TestNothingOvertakesTheQueue(t *testing.T) {
	const count = 20_000
	to := netip.MustParseAddrPort("203.0.113.9:51820")
	var mu sync.Mutex
	var got []uint32
	runs, arrived := 0, make(chan struct{})
	take := func(frames [][]byte) error {
		mu.Lock()
		defer mu.Unlock()
		runs++
		for _, b := range frames {
			got = append(got, binary.BigEndian.Uint32(b[len(b)-4:]))
		}
		if len(got) == count {
			close(arrived)
		}
		return nil
	}
	a := &allocation{
		link:    &link{write: func(b []byte) error { return take([][]byte{b}) }, writeRun: take},
		queue:   make(chan outgoing, count),
		traffic: &counters{}, channels: newChannels(false, netip.MustParseAddr("192.0.2.1")),
	}
	a.Transport = TransportUDP
	a.channels.bound.Store(&table{out: map[netip.AddrPort]*channel{to: {number: firstChannel}}})
	a.states.Store(&map[netip.Addr]permissionState{to.Addr(): granted})
	a.ctx, a.stop = context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(a.sendQueued)
	defer func() { a.stop(); working.Wait() }()

	now := 0
	for n := uint32(0); n < count; {
		var packets [][]byte
		for range 1 + n%100 {
			if n < count {
				packets = append(packets, binary.BigEndian.AppendUint32(nil, n))
				n++
			}
		}
		if n%3 == 0 {
			for _, p := range packets {
				a.put(p, to)
			}
			continue
		}
		mu.Lock()
		before := len(got)
		mu.Unlock()
		if err := a.send(packets, to); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if len(got) >= before+len(packets) && got[len(got)-1] == n-1 {
			now++
		}
		mu.Unlock()
		for _, p := range packets {
			clear(p) // nothing of it is kept
		}
	}
	<-arrived
	a.stop()
	working.Wait() // it counts after sending
	for i, n := range got {
		if n != uint32(i) {
			t.Fatalf("%d arrived instead of %d", n, i)
		}
	}
	if s := a.traffic.snapshot(); now == 0 || s.Sent != count || s.QueueDrops+s.Unsent != 0 || a.queued.Load() != 0 {
		t.Errorf("%d of %d calls sent at once; counters %+v, %d bytes left in the queue", now, runs, s, a.queued.Load())
	}
}

// A packet without a permission is refused like a whole run.
func TestRunsWithoutPermissionAreCounted(t *testing.T) {
	to := netip.MustParseAddrPort("203.0.113.9:51820")
	for state, want := range map[permissionState]error{denied: ErrDenied, unwanted: ErrNotPermitted} {
		a := &allocation{link: &link{}, traffic: &counters{}}
		a.states.Store(&map[netip.Addr]permissionState{to.Addr(): state})
		if err := a.send([][]byte{{1}, {2}, {3}}, to); !errors.Is(err, want) {
			t.Errorf("state %v: %v, want %v", state, err, want)
		}
		if n := a.traffic.permissionDrops.Load(); n != 3 {
			t.Errorf("state %v: %d counted, want 3", state, n)
		}
	}
}
