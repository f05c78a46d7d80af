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
	// smallReads is after how many small reads in a row a large buffer goes back: a
	// watch that follows a long list is a trickle.
	smallReads = 64
	// halfClosedIdle ends a connection whose one side has finished while the other has
	// said nothing for this long. Nobody reads from the finished side any more, so its
	// host's death would go unnoticed for ever. Two sides that still talk are never cut.
	halfClosedIdle = time.Hour
)

// splice copies both ways until both sides have ended their streams or the flow is
// aborted, and closes both connections. It adds one goroutine to the caller's and
// returns after that has ended.
//
// Back-pressure is the copy itself: a direction holds one buffer, and reads no more
// until the other side has taken it.
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

// oneWay copies from src to dst, ends dst's stream when src's ends, closes own, and
// then watches over the other direction until that has ended as well.
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

// awaitOther waits for the other direction, and aborts the flow when that stays silent
// for halfClosedIdle.
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

// window is the buffer of one direction. It waits on a small one, and grows to a large
// one while there is enough to fill it, if the budget allows.
type window struct {
	pool *buffers
	peer string
	src  net.Conn

	small, large *[]byte
	deadline     time.Time // of src's reads; set only while large is
	trickle      int       // small reads in a row
}

// next is the buffer to read into.
func (w *window) next() []byte {
	if w.large == nil {
		if w.small == nil {
			w.small = w.pool.small.Get().(*[]byte)
		}
		return *w.small
	}
	// The deadline is moved at most once in holdLarge: it costs a timer each time.
	if now := time.Now(); w.deadline.Sub(now) < holdLarge {
		w.deadline = now.Add(2 * holdLarge)
		_ = w.src.SetReadDeadline(w.deadline) // fails on a closed connection, as Read will
	}
	return *w.large
}

// filled is what the last read put there.
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

// expired tells the window's own deadline from a connection that timed out (keepalive),
// which the kernel reports as ETIMEDOUT, also a net.Error with Timeout.
func (w *window) expired(err error) bool {
	if w.large == nil || errors.Is(err, syscall.ETIMEDOUT) {
		return false
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// shrink gives the large buffer back and waits without a deadline.
func (w *window) shrink() {
	w.pool.putLarge(w.peer, w.large)
	w.large, w.trickle, w.deadline = nil, 0, time.Time{}
	_ = w.src.SetReadDeadline(time.Time{})
}

// release gives everything back.
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
