package load

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// In these tests each write to a pipe in a bubble takes a millisecond. So figures are exact,
// except for events at the very beginning or end of a window.

// near reports whether got equals want, apart from such events.
func near(got, want float64) bool { return math.Abs(got-want) <= 0.005*want }

func TestStreamsGoTheWayAskedFor(t *testing.T) {
	for direction, counts := range map[string]int{"": 1, Forward: 1, Reverse: 1, Both: 2} {
		t.Run("direction "+direction, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				r, err := Run(t.Context(), Spec{Streams: 1, Direction: direction, Duration: 100 * time.Millisecond},
					Ends{Listener: p, Dial: p.dial})
				if err != nil {
					t.Fatal(err)
				}
				if len(r.StreamBytes) != counts {
					t.Fatalf("got %d counts, want %d", len(r.StreamBytes), counts)
				}
				for i, n := range r.StreamBytes {
					if blocks := n / BlockSize; blocks < 99 || blocks > 101 {
						t.Errorf("count %d: got %d blocks in 100 ms, want 100", i, blocks)
					}
				}
			})
		})
	}
}

// lossy is a socket that loses every tenth datagram and swaps the last two of ten.
type lossy struct {
	net.Conn
	got  chan []byte
	kept []byte
	done chan struct{}
}

func newLossy() *lossy { return &lossy{got: make(chan []byte, 100), done: make(chan struct{})} }

func (l *lossy) Write(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	packet := append([]byte(nil), b...)
	switch binary.BigEndian.Uint64(b) % 10 {
	case 0:
	case 8:
		l.kept = packet
	case 9:
		l.got <- packet
		l.got <- l.kept
	default:
		l.got <- packet
	}
	return len(b), nil
}

func (l *lossy) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case packet := <-l.got:
		return copy(b, packet), nil, nil
	case <-l.done:
		return 0, nil, net.ErrClosed
	}
}

func (*lossy) WriteTo([]byte, net.Addr) (int, error) { return 0, net.ErrWriteToConnected }

func (*lossy) SetDeadline(time.Time) error { return nil }

func (l *lossy) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

func (l *lossy) ends(p *pipes) Ends {
	return Ends{
		Listener: p, Dial: p.dial,
		ListenPacket: func() (net.PacketConn, error) { return l, nil },
		DialPacket:   func(context.Context) (net.Conn, error) { return l, nil },
	}
}

func TestDatagramsThatAreLostAreCounted(t *testing.T) {
	for name, c := range map[string]struct{ rate, sent float64 }{
		"as fast as possible": {0, 1000},
		"at a rate":           {100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := Run(t.Context(), Spec{
					Load: LoadDatagrams, Size: 100, Rate: c.rate, Warmup: time.Second, Duration: 10 * time.Second,
				}, newLossy().ends(newPipes()))
				if err != nil {
					t.Fatal(err)
				}
				for unit, want := range map[string]float64{
					UnitSent: c.sent, UnitPackets: 0.9 * c.sent, UnitLost: 0.1, UnitReordered: 1. / 9,
				} {
					if got := r.Values[unit]; math.Abs(got-want) > 0.02*want { // one of 90 may be at the window's end
						t.Errorf("%s: got %v, want %v", unit, got, want)
					}
				}
				if want := 0.9 * c.sent * 100 * 10; math.Abs(float64(r.Bytes)-want) > 0.02*want {
					t.Errorf("got %d bytes, want %v", r.Bytes, want)
				}
			})
		})
	}
}

func TestRequestsFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		r, err := Run(t.Context(), Spec{Load: LoadRequests, Size: 300, Warmup: time.Second, Duration: 2 * time.Second},
			Ends{Listener: p, Dial: p.dial})
		if err != nil {
			t.Fatal(err)
		}
		// A request and its answer are one write each.
		for unit, want := range map[string]float64{UnitRequests: 500, UnitMedian: 0.002, UnitP99: 0.002, UnitP999: 0.002} {
			if got := r.Values[unit]; !near(got, want) {
				t.Errorf("%s: got %v, want %v", unit, got, want)
			}
		}
		if !near(float64(r.Bytes), 1000*300) {
			t.Errorf("got %d bytes, want those of 1,000 objects", r.Bytes)
		}
	})
}

// stalling is a connection whose writes wait while it is stalled.
type stalling struct {
	net.Conn
	from, to time.Time
}

func (s stalling) Write(b []byte) (int, error) {
	if now := time.Now(); !now.Before(s.from) && now.Before(s.to) {
		time.Sleep(s.to.Sub(now))
	}
	return s.Conn.Write(b)
}

// TestAStallShowsInEveryRequestThatItHeldUp checks that delays are not underestimated: requests
// that were due during a stall count from when they were due, including those answered after the
// window.
func TestAStallShowsInEveryRequestThatItHeldUp(t *testing.T) {
	for name, begins := range map[string]time.Duration{"within the window": 200 * time.Millisecond, "over its end": 700 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, start := newPipes(), time.Now()
				dial := func(ctx context.Context) (net.Conn, error) {
					c, err := p.dial(ctx)
					return stalling{c, start.Add(begins), start.Add(begins + 500*time.Millisecond)}, err
				}
				r, err := Run(t.Context(), Spec{Load: LoadRequests, Rate: 100, Size: 1, Streams: 2, Duration: time.Second},
					Ends{Listener: p, Dial: dial})
				if err != nil {
					t.Fatal(err)
				}
				if got := r.Values[UnitRequests]; !near(got, 100) {
					t.Errorf("got %v requests, want all 100", got)
				}
				if got := r.Values[UnitP99]; got < 0.48 || got > 0.52 {
					t.Errorf("99th percentile: got %v s, want the stall's 0.5 s", got)
				}
				if got, ok := r.Values[UnitP999]; ok {
					t.Errorf("99.9th percentile of 100 requests: got %v, want none", got)
				}
			})
		})
	}
}

func TestRequestsBesideABulkStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		dialled := 0
		r, err := Run(t.Context(), Spec{Load: LoadRequests, Size: 300, Busy: true, Duration: time.Second},
			Ends{Listener: p, Dial: func(ctx context.Context) (net.Conn, error) { dialled++; return p.dial(ctx) }})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := r.Values[UnitBulk], float64(1000*8*BlockSize); !near(got, want) {
			t.Errorf("got %v bit/s beside them, want %v", got, want)
		}
		if dialled != 3 || !near(r.Values[UnitRequests], 500) || !near(float64(r.Bytes), 500*300) {
			t.Errorf("got %d connections, %v requests a second, %d bytes; want 3 (wake-up, bulk, requests), 500 requests a second and only their objects' bytes",
				dialled, r.Values[UnitRequests], r.Bytes)
		}
	})
}

func TestRequestsBesideWorkloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, beside := newPipes(), newPipes()
		ends := Ends{Listener: p, Dial: p.dial, Workloads: &Ends{Listener: beside, Dial: beside.dial}}
		spec := Spec{Load: LoadRequests, Size: 300, Duration: 10 * time.Second, Workloads: &Workloads{Streams: 2, Connections: 40}}
		r, err := Run(t.Context(), spec, ends)
		if err != nil {
			t.Fatal(err)
		}
		for unit, want := range map[string]float64{UnitBulk: 2 * 1000 * 8 * BlockSize, UnitConnections: 40, UnitRequests: 500} {
			if got := r.Values[unit]; !near(got, want) {
				t.Errorf("%s: got %v, want %v", unit, got, want)
			}
		}
		spec.Workloads.Connections = 0
		if _, err := Run(t.Context(), spec, ends); err == nil {
			t.Error("workloads without connections: got no error")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		_, err := Run(t.Context(), Spec{Load: LoadRequests, Duration: time.Second, Workloads: &Workloads{Connections: 1}}, Ends{Listener: p, Dial: p.dial})
		if err == nil || !strings.Contains(err.Error(), "no ends for them") {
			t.Errorf("a subject without such ends: got %v", err)
		}
	})
}

func TestConnectionsAreMadeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		r, err := Run(t.Context(), Spec{Load: LoadConnections, Streams: 2, Warmup: time.Second, Duration: time.Second},
			Ends{Listener: p, Dial: p.dial})
		if err != nil {
			t.Fatal(err)
		}
		// The byte and its echo are one write each.
		if got := r.Values[UnitConnections]; !near(got, 1000) {
			t.Errorf("got %v connections a second, want 1,000 of two clients", got)
		}
		if got := r.Values[UnitP99]; got != 0.002 {
			t.Errorf("99th percentile: got %v s, want 0.002", got)
		}
	})
}

func TestEveryWatcherGetsEveryEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		r, err := Run(t.Context(), Spec{Load: LoadWatches, Streams: 20, Size: 1000, Warmup: time.Second, Duration: time.Second},
			Ends{Listener: p, Dial: p.dial})
		if err != nil {
			t.Fatal(err)
		}
		// An event is one write to each watcher, all at the same time.
		if got := r.Values[UnitEvents]; !near(got, 1000) {
			t.Errorf("got %v events a second, want 1,000", got)
		}
		if got := r.Values[UnitP999]; got != 0.001 {
			t.Errorf("99.9th percentile: got %v s, want 0.001", got)
		}
		if !near(float64(r.Bytes), 20*1000*1000) {
			t.Errorf("got %d bytes, want those of 1,000 events at 20 watchers", r.Bytes)
		}
	})
}

func TestFirstByteCountsFromNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		program := Program{Subjects: Subjects{"x": func(context.Context, Spec) (Ends, error) {
			time.Sleep(time.Second)
			return Ends{Listener: p, Dial: p.dial}, nil
		}}}
		r, err := program.Run(t.Context(), Spec{Subject: "x", Load: LoadFirstByte, Duration: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Values[UnitFirstByte]; got != 1.001 || r.Seconds != got || r.Bytes != 1 {
			t.Errorf("got %v s for %d bytes, want a second for the start and a millisecond for the byte", got, r.Bytes)
		}
	})
}

// mortal is a listener whose connections all close at a given time.
type mortal struct {
	*pipes
	end time.Time
}

func (m mortal) Accept() (net.Conn, error) {
	c, err := m.pipes.Accept()
	if err == nil {
		time.AfterFunc(time.Until(m.end), func() { c.Close() })
	}
	return c, err
}

func TestLoadsEndWhenTheSubjectDies(t *testing.T) {
	for _, spec := range []Spec{
		{Load: LoadStreams, Streams: 1},
		{Load: LoadRequests},
		{Load: LoadRequests, Rate: 100},
		{Load: LoadConnections},
		{Load: LoadWatches, Streams: 2, Size: 8},
	} {
		t.Run(spec.Load, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, p := time.Now(), newPipes()
				time.AfterFunc(time.Second, func() { p.Close() })
				spec.Duration = time.Hour
				_, err := Run(t.Context(), spec, Ends{Listener: mortal{p, start.Add(time.Second)}, Dial: p.dial})
				if took := time.Since(start); err == nil || took < time.Second || took > time.Minute {
					t.Errorf("got %v after %s, want an error soon after the second in which it died", err, took)
				}
			})
		})
	}
}

func TestIdleSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		r, err := Run(t.Context(), Spec{Load: LoadIdle, Warmup: time.Second, Duration: time.Minute}, Ends{Listener: p, Dial: p.dial})
		if err != nil || r.Seconds != 60 || r.Bytes != 1 {
			t.Errorf("got %d bytes in %v s, %v; want the one after the minute", r.Bytes, r.Seconds, err)
		}
	})
}

func TestLoadsRefuseNonsense(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Load: "video"}, `no load "video"`},
		{Spec{Streams: 1, Direction: "up"}, `no direction "up"`},
		{Spec{}, "0 streams"},
		{Spec{Load: LoadDatagrams, Size: 100}, "carries no UDP"},
		{Spec{Load: LoadDatagrams, Size: 7}, "datagrams of 7 bytes"},
		{Spec{Load: LoadRequests, Rate: -1}, "at -1 a second"},
		{Spec{Load: LoadWatches, Size: 8}, "0 watches"},
	} {
		t.Run(c.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				c.spec.Duration = time.Second
				if _, err := Run(t.Context(), c.spec, Ends{Listener: p, Dial: p.dial}); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want an error with %q", err, c.want)
				}
			})
		})
	}
}

func TestQuantilesAreThoseOfTheSamples(t *testing.T) {
	var sorted []time.Duration
	for i := range 1000 {
		sorted = append(sorted, time.Duration(i+1)*time.Millisecond)
	}
	values := make(map[string]float64)
	quantiles(values, sorted)
	for unit, want := range map[string]float64{UnitMedian: 0.5, UnitP99: 0.99, UnitP999: 0.999} {
		if values[unit] != want {
			t.Errorf("%s of 1 to 1,000 ms: got %v s, want %v", unit, values[unit], want)
		}
	}
	values = make(map[string]float64)
	quantiles(values, sorted[:100])
	if _, ok := values[UnitP999]; ok || values[UnitP99] != 0.099 {
		t.Errorf("of 100 delays: got %v, want the 99th percentile and nothing beyond", values)
	}
	quantiles(values, nil)
}
