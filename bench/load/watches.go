package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
	"time"
)

// UnitEvents is the number of events each second that every watcher received.
const UnitEvents = "events/s"

// stampSize is the size, in bytes, of an event's first field: when it was sent, in nanoseconds
// since the run began.
const stampSize = 8

// watches makes spec.Streams HTTP/1.1 requests whose responses do not end, as an API server's
// watches, and sends each event, of spec.Size bytes, to all of them as a chunk. The next event
// follows when all have received it. It measures the number of events, and how long each takes to
// each watcher.
func watches(ctx context.Context, spec Spec, ends Ends) (Result, error) {
	if spec.Streams < 1 || spec.Size < stampSize {
		return Result{}, fmt.Errorf("%d watches, events of %d bytes asked for; want at least 1, and %d bytes", spec.Streams, spec.Size, stampSize)
	}
	if err := wake(ctx, ends); err != nil {
		return Result{}, err
	}
	w := newWorkers()
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		w.close()
	}()
	f := &fanout{size: spec.Size, delays: newDelays(), all: make(chan struct{}, 1), stop: newStop(), done: make(chan struct{})}
	for i := range spec.Streams {
		if err := f.add(ctx, ends, w); err != nil {
			return Result{}, fmt.Errorf("watch %d: %w", i+1, err)
		}
	}
	w.Go(func() { f.run(ctx) })
	r, win, err := measure(spec, func() []uint64 { return []uint64{f.got.Load() * uint64(spec.Size)} }, w.failed)
	if err != nil {
		return Result{}, err
	}
	f.stop.at(win.to)
	if err := await(f.done, w.failed, "the last event"); err != nil {
		return Result{}, err
	}
	r.with(map[string]float64{UnitEvents: float64(r.Bytes) / float64(spec.Size*spec.Streams) / r.Seconds})
	quantiles(r.Values, f.delays.of(win))
	return r, nil
}

// fanout sends events to watchers.
type fanout struct {
	size   int
	delays *delays
	queues []chan []byte
	got    atomic.Uint64 // events that arrived, over all watchers
	left   atomic.Int64  // watchers without the newest event
	all    chan struct{} // signalled when none is left
	stop   *stop
	done   chan struct{} // closed when no event is in flight any more
}

// add connects a watcher.
func (f *fanout) add(ctx context.Context, ends Ends, w *workers) error {
	out, in, err := w.connect(ctx, ends)
	if err != nil {
		return err
	}
	queue := make(chan []byte, 1)
	f.queues = append(f.queues, queue)
	w.Go(func() {
		if err := answer(ctx, in, queue); err != nil {
			w.fail("send event", err)
		}
	})
	w.Go(func() { w.fail("watch", f.watch(ctx, out)) })
	return nil
}

// run sends events until the end.
func (f *fanout) run(ctx context.Context) {
	defer close(f.done)
	for t := (timetable{stop: f.stop}); t.wait(); {
		f.left.Store(int64(len(f.queues)))
		event := make([]byte, f.size)
		binary.BigEndian.PutUint64(event, uint64(t.start.Sub(f.delays.began)))
		for _, queue := range f.queues {
			queue <- event // never blocks: the watcher has taken the one before
		}
		select {
		case <-f.all:
		case <-ctx.Done():
			return
		}
	}
}

// answer answers a watch's request with events.
func answer(ctx context.Context, c net.Conn, queue <-chan []byte) error {
	if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
		return err
	}
	out := bufio.NewWriter(c)
	chunks := httputil.NewChunkedWriter(out)
	_, _ = out.WriteString("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
	for {
		// The writer keeps its first error until Flush.
		if err := out.Flush(); err != nil {
			return err
		}
		select {
		case event := <-queue:
			_, _ = chunks.Write(event)
		case <-ctx.Done():
			return nil
		}
	}
}

// watch receives events until an error, such as the end of the run.
func (f *fanout) watch(ctx context.Context, c net.Conn) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream/api/v1/objects?watch=1", http.NoBody)
	if err != nil {
		return err
	}
	if err := request.Write(c); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	event := make([]byte, f.size)
	for {
		if _, err := io.ReadFull(response.Body, event); err != nil {
			return err
		}
		at := f.delays.began.Add(time.Duration(binary.BigEndian.Uint64(event)))
		f.delays.add(at, time.Since(at))
		f.got.Add(1)
		if f.left.Add(-1) == 0 {
			f.all <- struct{}{}
		}
	}
}
