package load

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsBesideWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		dialled := 0
		r, err := Run(t.Context(), Spec{Load: LoadRequests, Size: 300, Rate: 50, Watches: 10, Duration: 60 * time.Second},
			Ends{Listener: p, Dial: func(ctx context.Context) (net.Conn, error) { dialled++; return p.dial(ctx) }})
		if err != nil {
			t.Fatal(err)
		}
		if dialled != 12 || !near(r.Values[UnitRequests], 50) || !near(float64(r.Bytes), 60*50*300) {
			t.Errorf("got %d connections, %v requests a second, %d bytes; want 12 (wake-up, ten watches, requests), 50 requests a second and only their objects' bytes",
				dialled, r.Values[UnitRequests], r.Bytes)
		}
		// Each of ten watches gets an event every 5 s, which takes the server the millisecond of
		// a write.
		if rate, p99 := r.Values[UnitEvents], r.Values[UnitEventP99]; rate < 1.9 || rate > 2.1 || !near(p99, 0.001) {
			t.Errorf("events: got %v a second, 99th percentile %v s; want 2 and 0.001", rate, p99)
		}
	})
}

func TestWatchesBesideRequestsNeedRoomForTheirStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		_, err := Run(t.Context(), Spec{Load: LoadRequests, Size: 4, Watches: 1, Duration: time.Second}, Ends{Listener: p, Dial: p.dial})
		if err == nil || !strings.Contains(err.Error(), "events of 4 bytes") {
			t.Errorf("got %v, want an error about the events' size", err)
		}
	})
}

// If bearers are given, they are counted instead of this process, and their counters and values
// are added.
func TestBearersOfARunAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		counted := 0.0
		r, err := Run(t.Context(), Spec{Streams: 1, Duration: time.Second}, Ends{Listener: p, Dial: p.dial, Bearers: Bearers{
			Processes: []int{1 << 30},
			Counters: func() (map[string]float64, error) {
				counted += 21
				return map[string]float64{"wire-bytes": counted}, nil
			},
			Values: map[string]float64{"join-sec": 0.5},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Values["wire-bytes"] != 21 || r.Values["join-sec"] != 0.5 {
			t.Errorf("got %v, want the counter's increase and the value", r.Values)
		}
		if r.CPUSeconds() != 0 || r.PeakRSS != 0 {
			t.Errorf("got %v s and %d bytes, want nothing of this process", r.CPUSeconds(), r.PeakRSS)
		}
	})
}
