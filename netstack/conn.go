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

	// copySize is the buffer of WriteTo and ReadFrom: a few full TCP segments, so that a
	// system call on the other side moves as much as TCP does at once.
	copySize = 256 << 10
)

// Conn is a TCP connection over the tunnel. As with any net.Conn, methods may be called
// from several goroutines.
//
// Errors wrap syscall's numbers (ECONNRESET, ETIMEDOUT, EPIPE, …), os.ErrDeadlineExceeded
// and net.ErrClosed. An error of the connection is reported by every later call.
type Conn struct {
	*socket
	piece int // bytes to write at a time: whole segments

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
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		return 0, io.EOF
	default:
		return 0, c.fail("read", c.fatal(err))
	}
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

// copyBuffers are shared by WriteTo and ReadFrom.
var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// WriteTo implements io.WriterTo: it writes what arrives to w until the peer's half-close
// or an error. It makes io.Copy move whole windows instead of 32 KB at a time.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	var total int64
	for {
		n, err := c.Read(buf[:])
		if n > 0 {
			written, werr := w.Write(buf[:n])
			total += int64(written)
			if werr == nil && written < n {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return total, werr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// ReadFrom implements io.ReaderFrom: it sends what r gives until its end or an error. It
// does not close for writing.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	size := copySize / c.piece * c.piece
	var total int64
	for {
		n, err := r.Read(buf[:size])
		if n > 0 {
			written, werr := c.Write(buf[:n])
			total += int64(written)
			if werr != nil {
				return total, werr
			}
		}
		if err == io.EOF {
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
