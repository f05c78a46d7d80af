package netstack

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// keepalive finds peers that vanished: the first probe after a minute of silence,
	// given up three minutes later.
	keepaliveIdle     = 60 * time.Second
	keepaliveInterval = 15 * time.Second
	keepaliveCount    = 8

	// shortRTT is the round-trip time below which a connection uses Reno's congestion
	// control instead of CUBIC's. RFC 9438 §4.3 wants CUBIC to do as Reno there; gVisor's
	// doesn't once losses have made its window small (it drops fractions of a packet from
	// its growth): with 1 % loss it moved a tenth of what Reno did. On longer paths it
	// fills bottlenecks better (README, measurements).
	shortRTT = 5 * time.Millisecond

	// copySize is the buffer of WriteTo and ReadFrom: a few full TCP segments, so that a
	// system call on the other side moves as much as TCP does at once.
	copySize = 256 << 10
	// smallCopySize is what they hold while little comes: one record of TLS, about.
	smallCopySize = 16 << 10
)

// Conn is a TCP connection over the tunnel. As with any net.Conn, methods may be called
// from several goroutines.
//
// Errors wrap syscall's numbers (ECONNRESET, ETIMEDOUT, EPIPE, …), os.ErrDeadlineExceeded
// and net.ErrClosed. An error of the connection is reported by every later call.
type Conn struct {
	*socket
	piece   int        // bytes to write at a time: whole segments; immutable
	writing sync.Mutex // held by a Write to its end, so that two don't mix

	mu     sync.Mutex
	broken error // the first fatal error, since gVisor tells it only once
}

var (
	_ net.Conn      = (*Conn)(nil)
	_ io.WriterTo   = (*Conn)(nil)
	_ io.ReaderFrom = (*Conn)(nil)
)

// newConn takes over a connected endpoint.
func (s *Stack) newConn(ep tcpip.Endpoint, wq *waiter.Queue) *Conn {
	c := &Conn{socket: s.newSocket("tcp", ep, wq)}
	c.piece = pieceSize(s.opts.MTU, c.local.Addr().Is4())
	// These cannot fail on a TCP endpoint, and a connection without them still works.
	idle, interval := tcpip.KeepaliveIdleOption(keepaliveIdle), tcpip.KeepaliveIntervalOption(keepaliveInterval)
	_ = ep.SetSockOpt(&idle)
	_ = ep.SetSockOpt(&interval)
	_ = ep.SetSockOptInt(tcpip.KeepaliveCountOption, keepaliveCount)
	ep.SocketOptions().SetKeepAlive(true)
	var info tcpip.TCPInfoOption
	if err := ep.GetSockOpt(&info); err == nil && info.RTT > 0 && info.RTT < shortRTT {
		reno := tcpip.CongestionControlOption("reno")
		_ = ep.SetSockOpt(&reno)
	}
	return c
}

// pieceSize is the largest number of whole segments' bytes that gVisor sends at once. A
// write of just 64 KB would leave as one large segment and one of a few bytes.
func pieceSize(mtu int, v4 bool) int {
	mss := mtu - ipv6HeaderLen - tcpHeaderLen - timestampOption
	if v4 {
		mss += ipv6HeaderLen - ipv4HeaderLen
	}
	return max(min(trainPayload(mtu), gsoMaxSize-gsoReserve)/mss, 1) * mss
}

// fatal remembers the first error that ends the connection, and gives it back in place of
// what gVisor says afterwards.
func (c *Conn) fatal(err error) error {
	if isClosed(c.closed) {
		return net.ErrClosed
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil && errno != syscall.EPIPE && errno != syscall.ENOTCONN {
		c.broken = err
	}
	if c.broken != nil {
		return c.broken
	}
	return err
}

// brokenError is the remembered error.
func (c *Conn) brokenError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// Read implements net.Conn. The peer's half-close is io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := c.readOnce(b)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return 0, c.fail("read", c.fatal(err))
}

// readOnce waits for data and takes as much of it as fits.
func (c *Conn) readOnce(b []byte) (int, error) {
	n, eof := 0, false
	err := c.await(waiter.ReadableEvents, &c.read, func() tcpip.Error {
		w := tcpip.SliceWriter(b)
		res, err := c.ep.Read(&w, tcpip.ReadOptions{})
		if _, ok := err.(*tcpip.ErrClosedForReceive); ok {
			eof = true
			return nil
		}
		n = res.Count
		return err
	})
	if err != nil {
		return 0, err
	}
	if eof {
		switch broken := c.brokenError(); {
		case isClosed(c.closed) || isClosed(c.done):
			return 0, net.ErrClosed
		case broken != nil:
			return 0, broken
		default:
			return 0, io.EOF
		}
	}
	c.ep.ModerateRecvBuf(n)
	return n, nil
}

// Write implements net.Conn. It returns when everything is in the send buffer.
func (c *Conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	done := 0
	var r bytes.Reader
	for done < len(b) {
		n := 0
		err := c.await(waiter.WritableEvents, &c.write, func() tcpip.Error {
			r.Reset(b[done:min(done+c.piece, len(b))])
			written, err := c.ep.Write(&r, tcpip.WriteOptions{})
			n = int(written)
			return err
		})
		done += n
		if err != nil {
			return done, c.fail("write", c.fatal(err))
		}
	}
	return done, nil
}

// copyBuffers are shared by all copying connections.
var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// copyBuffer is what one direction of copying reads into: small while little comes, so
// that a thousand idle connections don't hold a thousand large buffers, and large from
// the first read that fills the small one.
type copyBuffer struct {
	small []byte
	large *[copySize]byte // nil while not in use
	size  int             // of large, that is used
}

func newCopyBuffer(size int) *copyBuffer {
	return &copyBuffer{small: make([]byte, smallCopySize), size: size}
}

// current is the buffer for the next read.
func (b *copyBuffer) current() []byte {
	if b.large != nil {
		return b.large[:b.size]
	}
	return b.small
}

// adapt chooses the next buffer by how much the last read gave.
func (b *copyBuffer) adapt(n int) {
	switch {
	case b.large == nil && n == len(b.small):
		b.large = copyBuffers.Get().(*[copySize]byte)
	case b.large != nil && n < len(b.small):
		b.release()
	}
}

func (b *copyBuffer) release() {
	if b.large != nil {
		copyBuffers.Put(b.large)
		b.large = nil
	}
}

// WriteTo implements io.WriterTo: it writes what arrives to w until the peer's half-close
// or an error. It makes io.Copy move whole windows instead of 32 KB at a time.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	return copyAll(w, c, newCopyBuffer(copySize))
}

// ReadFrom implements io.ReaderFrom: it sends what r gives until its end or an error. It
// does not close for writing.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	return copyAll(c, r, newCopyBuffer(copySize/c.piece*c.piece))
}

// copyAll copies r to w until r's end.
func copyAll(w io.Writer, r io.Reader, b *copyBuffer) (int64, error) {
	defer b.release()
	var total int64
	for {
		buf := b.current()
		n, err := r.Read(buf)
		if n > 0 {
			written, werr := w.Write(buf[:n])
			total += int64(written)
			if werr == nil && written < n {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return total, werr
			}
			b.adapt(n)
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// CloseWrite ends our side of the stream (FIN); reading goes on.
func (c *Conn) CloseWrite() error {
	if isClosed(c.closed) {
		return c.fail("close", net.ErrClosed)
	}
	if err := c.ep.Shutdown(tcpip.ShutdownWrite); err != nil {
		return c.fail("close", c.fatal(sysError(err)))
	}
	return nil
}

// Abort ends the connection at once with a reset: what is not yet sent is discarded, and
// the peer sees ECONNRESET.
func (c *Conn) Abort() {
	c.shut(func() {
		c.ep.Abort()
		c.ep.Close()
	})
}
