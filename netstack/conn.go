package netstack

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// Keepalive detects peers that vanished: the first probe is sent after a minute of silence, and
	// the connection is given up three minutes later.
	keepaliveIdle     = 60 * time.Second
	keepaliveInterval = 15 * time.Second
	keepaliveCount    = 8
)

// Conn is a TCP connection over the tunnel. Like any net.Conn, it is safe for concurrent use.
//
// Errors wrap syscall's numbers (ECONNRESET, ETIMEDOUT, EPIPE, …), os.ErrDeadlineExceeded and
// net.ErrClosed. An error of the connection is returned by every later call.
type Conn struct {
	*socket
	piece  int        // bytes to write at a time: one large segment; immutable
	tuning sync.Mutex // held while the receive buffer is tuned
	share  *share
	orphan time.Duration // how long a closed connection may make no progress; immutable

	congestion *congestion // Under share.writing.
	finished   atomic.Bool // nothing more may be written

	mu     sync.Mutex
	broken error // the first fatal error, which gVisor returns only once
}

var (
	_ net.Conn      = (*Conn)(nil)
	_ io.WriterTo   = (*Conn)(nil)
	_ io.ReaderFrom = (*Conn)(nil)
)

// newConn wraps a connected endpoint and its share of the memory.
func (s *Stack) newConn(ep tcpip.Endpoint, wq *waiter.Queue, share *share) *Conn {
	c := &Conn{socket: s.newSocket("tcp", ep, wq), share: share, orphan: s.orphan}
	var info tcpip.TCPInfoOption
	_ = ep.GetSockOpt(&info) // cannot fail on a TCP endpoint; unknown values are 0
	v4 := c.local.Addr().Is4()
	mss := segmentSize(s.opts.MTU, v4)
	with := controlCUBIC
	var below *flow
	switch {
	case info.RTT >= s.long && negotiated(ep):
		with = controlFlow
		below = s.sendBelow(c, mss, info.RTT)
	case info.RTT > 0 && info.RTT < shortRTT:
		with = controlReno
	}
	share.attach(ep, wq, info.RTT, mss, below)
	c.piece = pieceSize(s.opts.MTU, v4)
	// These cannot fail on a TCP endpoint, and a connection without them still works.
	idle, interval := tcpip.KeepaliveIdleOption(keepaliveIdle), tcpip.KeepaliveIntervalOption(keepaliveInterval)
	_ = ep.SetSockOpt(&idle)
	_ = ep.SetSockOpt(&interval)
	_ = ep.SetSockOptInt(tcpip.KeepaliveCountOption, keepaliveCount)
	ep.SocketOptions().SetKeepAlive(true)
	c.congestion = newCongestion(ep, with)
	return c
}

// negotiated reports whether the peer sends selective acknowledgements and timestamps, as all
// current stacks do.
func negotiated(ep tcpip.Endpoint) bool {
	t, ok := ep.(*tcp.Endpoint)
	return ok && t.SACKPermitted && t.SendTSOk
}

// sendBelow makes package sender send a connection's data, below gVisor, until it ends.
func (s *Stack) sendBelow(c *Conn, mss int, rtt time.Duration) *flow {
	f := s.dev.flows.open(c.local, c.remote, rtt, mss)
	f.wake = func() { c.wq.Notify(waiter.WritableEvents) }
	entry := waiter.NewFunctionEntry(waiter.EventHUp, func(waiter.EventMask) { s.dev.flows.close(f) })
	c.wq.EventRegister(&entry)
	if ended(c.ep) {
		s.dev.flows.close(f)
	}
	return f
}

// segmentSize is the payload of a full segment with timestamps, in bytes.
func segmentSize(mtu int, v4 bool) int {
	mss := mtu - ipv6HeaderLen - tcpHeaderLen - timestampOption
	if v4 {
		mss += ipv6HeaderLen - ipv4HeaderLen
	}
	return mss
}

// pieceSize is what gVisor sends as one large segment (see trainPayload). A write of just 64 KB
// would leave as one large segment and another of a few bytes.
func pieceSize(mtu int, v4 bool) int {
	mss := segmentSize(mtu, v4)
	return max(min(trainPayload(mtu), gsoMaxSize-gsoReserve)/mss, 1) * mss
}

// fatal stores the first error that ends the connection, and returns it instead of gVisor's later
// ones.
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

// brokenError returns the stored error.
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
	c.tuning.Lock()
	defer c.tuning.Unlock()
	c.share.afterRead(n)
	return n, nil
}

// Write implements net.Conn. It returns when everything is in the send buffer, which over a long
// path has room for little more than is in flight.
func (c *Conn) Write(b []byte) (int, error) {
	c.share.writing.Lock()
	defer c.share.writing.Unlock()
	done := 0
	var r bytes.Reader
	defer r.Reset(nil) // gVisor keeps the reader until the next write; it need not keep b.
	for done < len(b) {
		n := 0
		err := c.await(waiter.WritableEvents, &c.write, func() tcpip.Error {
			if c.share.full() && !c.finished.Load() && !ended(c.ep) { // if it has ended, gVisor returns the error
				return &tcpip.ErrWouldBlock{}
			}
			now := time.Now()
			c.share.beforeWrite(now)
			c.congestion.look(now)
			r.Reset(b[done:min(done+c.piece, len(b))])
			written, err := c.ep.Write(&r, tcpip.WriteOptions{})
			n = int(written)
			return err
		})
		done += n
		c.share.afterWrite(n)
		if err != nil {
			return done, c.fail("write", c.fatal(err))
		}
	}
	return done, nil
}

// CloseWrite ends our side of the stream (FIN); reading still works.
func (c *Conn) CloseWrite() error {
	if isClosed(c.closed) {
		return c.fail("close", net.ErrClosed)
	}
	c.finished.Store(true) // before writers are woken
	if err := c.ep.Shutdown(tcpip.ShutdownWrite); err != nil {
		return c.fail("close", c.fatal(sysError(err)))
	}
	return nil
}

// Close implements net.Conn. Written data is still sent, as long as the peer takes some of it every
// minute. Calls in progress return net.ErrClosed. It never fails.
func (c *Conn) Close() error {
	c.shut(func() {
		limit := tcpip.TCPUserTimeoutOption(c.orphan)
		_ = c.ep.SetSockOpt(&limit) // cannot fail on a TCP endpoint
		c.ep.Close()
		c.share.closeReceive()
		c.share.memory.linger(c.share)
	})
	return nil
}

// Abort resets the connection at once: unsent data is discarded, and the peer sees ECONNRESET.
func (c *Conn) Abort() {
	c.shut(func() {
		c.ep.Abort()
		c.ep.Close()
		c.share.closeReceive()
	})
}
