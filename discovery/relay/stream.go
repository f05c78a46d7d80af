package relay

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/pion/turn/v4"
)

const (
	// streamQueue bounds the queue to a TCP connection, in frames of some 1.5 KB: a few round trips
	// of a fast relay. What does not fit is dropped, as a router would.
	streamQueue = 256
	// streamBuffer is the size of a write, in bytes.
	streamBuffer = 64 << 10
	// writeTimeout is when a connection that accepts nothing counts as broken.
	writeTimeout = 10 * time.Second
)

var errQueueFull = errors.New("the connection takes no more")

// stream carries frames over TCP or TLS (RFC 8656 §12.5: STUN messages, and ChannelData padded to 4
// bytes, one after the other). The library writes while holding locks that its reading needs, so
// writes go to a queue and never block.
type stream struct {
	conn   net.Conn
	queue  chan []byte
	broken chan error // the first failure; capacity 1
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

// newStream starts carrying frames; what arrives goes to handle.
func newStream(conn net.Conn, handle func(packet []byte) bool) *stream {
	s := &stream{
		conn: conn, queue: make(chan []byte, streamQueue),
		broken: make(chan error, 1), done: make(chan struct{}),
	}
	s.wg.Go(s.send)
	s.wg.Go(func() { s.receive(handle) })
	return s
}

// write queues a frame. It does not keep b.
func (s *stream) write(b []byte) error {
	select {
	case s.queue <- append([]byte(nil), b...):
		return nil
	default:
		return errQueueFull
	}
}

// send writes from the queue, as much at a time as there is.
func (s *stream) send() {
	w := bufio.NewWriterSize(s.conn, streamBuffer)
	for {
		var b []byte
		select {
		case b = <-s.queue:
		case <-s.done:
			return
		}
		_ = s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := w.Write(b)
		for more := true; more && err == nil; {
			select {
			case b = <-s.queue:
				_, err = w.Write(b)
			default:
				more = false
			}
		}
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			s.fail(fmt.Errorf("write: %w", err))
			return
		}
	}
}

// receive splits the stream into frames.
func (s *stream) receive(handle func(packet []byte) bool) {
	frames := turn.NewSTUNConn(s.conn)
	buf := make([]byte, 1<<16)
	for {
		n, _, err := frames.ReadFrom(buf)
		if err == nil && n == 0 {
			// The library computes a frame's size in 16 bits: one of 65,516 bytes becomes empty,
			// and is returned for ever.
			err = errors.New("a frame that is too large")
		}
		if err != nil {
			s.fail(fmt.Errorf("read: %w", err))
			return
		}
		handle(buf[:n])
	}
}

func (s *stream) fail(err error) {
	select {
	case s.broken <- err:
	default:
	}
}

// close closes the connection and waits. That also ends the allocation.
func (s *stream) close() {
	s.once.Do(func() {
		close(s.done)
		s.conn.Close()
	})
	s.wg.Wait()
}
