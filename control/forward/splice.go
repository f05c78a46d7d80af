package forward

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// holdLarge is how long a connection may keep its large buffer without filling it.
	holdLarge = time.Second
	// smallReads is after how many consecutive small reads a large buffer is returned: a watch that
	// follows a long list is a trickle.
	smallReads = 64
	// halfClosedIdle ends a connection if one side has finished and the other has sent nothing for
	// this long. Nothing is read from the finished side any more, so its host's death would never
	// be noticed. Connections with two open sides are never cut.
	halfClosedIdle = time.Hour
)

// splice copies both ways until both sides have ended their streams or the flow is
// aborted, and closes both connections. It adds one goroutine to the caller's and
// returns after that has ended.
//
// The copy itself is the back-pressure: a direction holds one buffer, and reads no more until the
// other side has accepted it.
func (f *flow) splice(peerSide, localSide Conn) {
	f.mu.Lock()
	f.peerSide = peerSide
	f.mu.Unlock()
	sent, received := make(chan struct{}), make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		f.oneWay(peerSide, localSide, &f.tx, sent, received)
	}()
	f.oneWay(localSide, peerSide, &f.rx, received, sent)
	<-finished
	f.finish(peerSide)
	f.finish(localSide)
}

// oneWay copies from src to dst, ends dst's stream when src's ends, closes own, and then monitors
// the other direction until that has ended as well.
func (f *flow) oneWay(dst, src Conn, count *atomic.Uint64, own chan<- struct{}, other <-chan struct{}) {
	err := f.pump(dst, src, count)
	if err == nil {
		err = dst.CloseWrite()
	}
	if err != nil {
		f.abort()
	}
	close(own)
	f.awaitOther(other)
}

// pump copies from src to dst until src ends (nil) or either fails.
func (f *flow) pump(dst io.Writer, src net.Conn, count *atomic.Uint64) error {
	w := window{pool: f.table.buffers[classOf(f.service)], peer: f.peer, src: src}
	defer w.release()
	for {
		n, err := src.Read(w.next())
		if n > 0 {
			m, werr := dst.Write(w.filled(n))
			count.Add(uint64(m))
			if werr != nil {
				return werr
			}
		}
		switch {
		case err == nil:
			w.adapt(n)
		case errors.Is(err, io.EOF):
			return nil
		case w.expired(err):
			w.shrink()
		default:
			return err
		}
	}
}

// awaitOther waits for the other direction, and aborts the flow if that is silent for
// halfClosedIdle.
func (f *flow) awaitOther(other <-chan struct{}) {
	t := time.NewTicker(halfClosedIdle)
	defer t.Stop()
	last := f.rx.Load() + f.tx.Load()
	for {
		select {
		case <-other:
			return
		case <-t.C:
			now := f.rx.Load() + f.tx.Load()
			if now == last {
				f.abort()
			}
			last = now
		}
	}
}

// window is the buffer of one direction. It waits with a small buffer, and uses a large one while
// there is enough data to fill it, if the budget allows.
type window struct {
	pool *buffers
	peer string
	src  net.Conn

	small, large *[]byte
	deadline     time.Time // of src's reads; set only while large is
	trickle      int       // small reads in a row
}

// next returns the buffer to read into.
func (w *window) next() []byte {
	if w.large == nil {
		if w.small == nil {
			w.small = w.pool.small.Get().(*[]byte)
		}
		return *w.small
	}
	// The deadline is moved at most once per holdLarge, because each time costs a timer.
	if now := time.Now(); w.deadline.Sub(now) < holdLarge {
		w.deadline = now.Add(2 * holdLarge)
		_ = w.src.SetReadDeadline(w.deadline) // fails on a closed connection, as Read will
	}
	return *w.large
}

// filled returns the data of the last read.
func (w *window) filled(n int) []byte {
	if w.large != nil {
		return (*w.large)[:n]
	}
	return (*w.small)[:n]
}

// adapt grows or shrinks the window after a read of n bytes.
func (w *window) adapt(n int) {
	switch {
	case w.large == nil:
		if n == smallBuffer {
			w.large = w.pool.getLarge(w.peer)
		}
	case n > smallBuffer:
		w.trickle = 0
	default:
		if w.trickle++; w.trickle >= smallReads {
			w.shrink()
		}
	}
}

// expired distinguishes the window's own deadline from a connection that timed out (keepalive),
// which the kernel reports as ETIMEDOUT, also a net.Error with Timeout.
func (w *window) expired(err error) bool {
	if w.large == nil || errors.Is(err, syscall.ETIMEDOUT) {
		return false
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// shrink returns the large buffer and removes the deadline.
func (w *window) shrink() {
	w.pool.putLarge(w.peer, w.large)
	w.large, w.trickle, w.deadline = nil, 0, time.Time{}
	_ = w.src.SetReadDeadline(time.Time{})
}

// release returns all buffers.
func (w *window) release() {
	if w.large != nil {
		w.pool.putLarge(w.peer, w.large)
		w.large = nil
	}
	if w.small != nil {
		w.pool.small.Put(w.small)
		w.small = nil
	}
}
