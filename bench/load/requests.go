package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Units of the requests' values, besides those of delays.
const (
	UnitRequests = "requests/s" // answered requests
	UnitBulk     = "bulk-bit/s" // rate of the bulk stream beside them
)

// requests makes HTTP/1.1 requests from the dialling end for an object of spec.Size bytes, on
// spec.Streams persistent connections (0 means 1), and measures the time until the last byte of
// the answer.
//
// With a rate, each connection has a timetable. A request that is late because the one before was
// not answered yet counts from when it was due: a stall then shows in all requests that it
// delayed, not in only one. Without a rate the next request follows the answer. spec.Watches adds
// watches, spec.Busy a bulk stream, and spec.Workloads other traffic.
func requests(ctx context.Context, spec Spec, ends Ends) (Result, error) {
	if spec.Size < 0 || spec.Rate < 0 {
		return Result{}, fmt.Errorf("objects of %d bytes at %g a second asked for; neither may be negative", spec.Size, spec.Rate)
	}
	w := newWorkers()
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		w.closing.Store(true) // before the errors that this causes
		cancel()
		if ends.Workloads != nil {
			_ = ends.Workloads.Listener.Close()
		}
		w.close()
	}()
	if err := wake(ctx, ends); err != nil {
		return Result{}, err
	}
	p := &polling{delays: newDelays(), stop: newStop(), done: make(chan struct{})}
	beside, err := watchBeside(ctx, spec.Watches, spec.Size, ends, w)
	if err != nil {
		return Result{}, err
	}
	var bulk counts
	if spec.Busy {
		if bulk, err = w.stream(ctx, ends, spec.Direction); err != nil {
			return Result{}, fmt.Errorf("bulk stream: %w", err)
		}
	}
	var c *calls
	if spec.Workloads != nil {
		if bulk, c, err = w.workloads(ctx, *spec.Workloads, ends.Workloads, p.stop); err != nil {
			return Result{}, fmt.Errorf("workloads: %w", err)
		}
	}
	if err := p.start(ctx, spec, ends, w); err != nil {
		return Result{}, err
	}
	var carried []uint64 // bytes of the bulk stream at the window's beginning and end
	r, win, err := measure(spec, func() []uint64 {
		carried = append(carried, bulk.sum())
		return []uint64{p.bytes.Load()}
	}, w.failed)
	if err != nil {
		return Result{}, err
	}
	p.stop.at(win.to) // requests due until then are still answered
	if err := await(p.done, w.failed, "requests"); err != nil {
		return Result{}, err
	}
	sorted := p.delays.of(win)
	r.with(map[string]float64{UnitRequests: float64(len(sorted)) / r.Seconds})
	if bulk != nil {
		r.Values[UnitBulk] = float64(carried[1]-carried[0]) * 8 / r.Seconds
	}
	if c != nil {
		r.Values[UnitConnections] = float64(len(c.delays.of(win))) / r.Seconds
	}
	quantiles(r.Values, sorted)
	beside.report(&r, win)
	return r, nil
}

// polling are the clients of a run.
type polling struct {
	delays  *delays
	bytes   atomic.Uint64 // bytes of the bodies that arrived
	stop    *stop
	running atomic.Int64  // clients that have not ended
	done    chan struct{} // closed when all have ended
}

// start connects and starts the clients.
func (p *polling) start(ctx context.Context, spec Spec, ends Ends, w *workers) error {
	n := max(spec.Streams, 1)
	p.running.Store(int64(n))
	clients := make([]net.Conn, n)
	for i := range clients {
		out, in, err := w.connect(ctx, ends)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
		clients[i] = out
		w.Go(func() { w.serve(in, spec.Size) })
	}
	for i, c := range clients {
		t := timetable{stop: p.stop}
		if spec.Rate > 0 {
			t.interval = time.Duration(float64(n) / spec.Rate * float64(time.Second))
			t.next = time.Now().Add(t.interval * time.Duration(i) / time.Duration(n))
		}
		w.Go(func() {
			defer func() {
				if p.running.Add(-1) == 0 {
					close(p.done)
				}
			}()
			if err := p.client(ctx, c, &t); err != nil {
				w.fail("request", err)
			}
		})
	}
	return nil
}

// client makes requests by a timetable until it ends.
func (p *polling) client(ctx context.Context, c net.Conn, t *timetable) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream/api/v1/object", http.NoBody)
	if err != nil {
		return err
	}
	buffered := bufio.NewReader(c)
	for t.wait() {
		if err := request.Write(c); err != nil {
			return err
		}
		response, err := http.ReadResponse(buffered, request)
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil {
			return err
		}
		p.delays.add(t.start, time.Since(t.start))
		p.bytes.Add(uint64(n))
	}
	return nil
}

// serve answers requests with an object of the given size.
func (w *workers) serve(c net.Conn, size int) {
	in, out := bufio.NewReader(c), bufio.NewWriter(c)
	header := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
	object := make([]byte, size)
	for {
		if _, err := http.ReadRequest(in); err != nil {
			w.fail("read request", err)
			return
		}
		// The writer keeps its first error until Flush.
		_, _ = out.WriteString(header)
		_, _ = out.Write(object)
		if err := out.Flush(); err != nil {
			w.fail("answer", err)
			return
		}
	}
}
