package load

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// workers are the goroutines of a run and their connections.
type workers struct {
	sync.WaitGroup
	closing atomic.Bool
	failed  chan error // holds the first failure

	mu    sync.Mutex
	conns map[conn]struct{}
}

// conn is a connection or an unconnected socket.
type conn interface {
	SetDeadline(time.Time) error
	Close() error
}

func newWorkers() *workers {
	return &workers{failed: make(chan error, 1), conns: make(map[conn]struct{})}
}

// connect makes a connection that is closed with the workers.
func (w *workers) connect(ctx context.Context, ends Ends) (out, in net.Conn, err error) {
	if out, in, err = connect(ctx, ends); err == nil {
		w.own(out, in)
	}
	return out, in, err
}

// own registers connections, which close then closes. If close has been called, own closes them
// itself.
func (w *workers) own(conns ...conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = struct{}{}
		if w.closing.Load() {
			end(c)
		}
	}
}

// closed closes a connection for its worker.
func (w *workers) closed(c conn) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
	_ = c.Close()
}

// fail reports an unexpected error. Only the first is kept.
func (w *workers) fail(what string, err error) {
	if w.closing.Load() {
		return
	}
	select {
	case w.failed <- fmt.Errorf("%s: %w", what, err):
	default:
	}
}

// close closes all connections and waits for the goroutines.
func (w *workers) close() {
	w.closing.Store(true)
	w.mu.Lock()
	for c := range w.conns {
		end(c)
	}
	w.mu.Unlock()
	w.Wait()
}

// end closes a connection and unblocks its readers and writers, even if Close waits for a last
// packet. Errors of closing do not matter to a measurement.
func end(c conn) {
	_ = c.SetDeadline(time.Unix(1, 0))
	_ = c.Close()
}
