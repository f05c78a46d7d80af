package netstack

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// socket is what TCP, UDP and ICMP endpoints have in common: waiting with deadlines, closing, and
// errors like the net package's.
//
// gVisor's own adapter (pkg/tcpip/adapters/gonet) is not used because its errors are bare strings:
// they match neither syscall.ECONNREFUSED nor os.ErrDeadlineExceeded nor net.ErrClosed. It also
// returns an error once and end-of-file after it, and has no reset.
type socket struct {
	ep          tcpip.Endpoint
	wq          *waiter.Queue
	network     string // "tcp" or "udp", for errors
	local       netip.AddrPort
	remote      netip.AddrPort  // invalid if not connected
	done        <-chan struct{} // the stack is closing
	closed      chan struct{}
	closeOnce   sync.Once
	read, write deadline
}

func (s *Stack) newSocket(network string, ep tcpip.Endpoint, wq *waiter.Queue) *socket {
	k := &socket{ep: ep, wq: wq, network: network, done: s.done, closed: make(chan struct{})}
	if a, err := ep.GetLocalAddress(); err == nil {
		k.local = fromFull(a)
	}
	if a, err := ep.GetRemoteAddress(); err == nil {
		k.remote = fromFull(a)
	}
	return k
}

// await calls try until it returns anything but ErrWouldBlock, waiting for events in between. It
// ends early with os.ErrDeadlineExceeded or net.ErrClosed.
func (k *socket) await(events waiter.EventMask, d *deadline, try func() tcpip.Error) error {
	passed := d.passed()
	if isClosed(passed) {
		return os.ErrDeadlineExceeded
	}
	if isClosed(k.closed) {
		return net.ErrClosed
	}
	err := try()
	if !wouldBlock(err) {
		return k.ended(err)
	}
	entry, ready := waiter.NewChannelEntry(events | waiter.EventErr | waiter.EventHUp)
	k.wq.EventRegister(&entry)
	defer k.wq.EventUnregister(&entry)
	for {
		if err = try(); !wouldBlock(err) {
			return k.ended(err)
		}
		select {
		case <-ready:
		case <-passed:
			return os.ErrDeadlineExceeded
		case <-k.closed:
			return net.ErrClosed
		case <-k.done:
			return net.ErrClosed
		}
	}
}

// ended maps the error that ended a call. After closing, any error from gVisor means just that.
func (k *socket) ended(err tcpip.Error) error {
	switch {
	case err == nil:
		return nil
	case isClosed(k.closed) || isClosed(k.done):
		return net.ErrClosed
	default:
		return sysError(err)
	}
}

func wouldBlock(err tcpip.Error) bool {
	_, ok := err.(*tcpip.ErrWouldBlock)
	return ok
}

// fail wraps an error as the net package does.
func (k *socket) fail(op string, err error) error {
	e := &net.OpError{Op: op, Net: k.network, Source: k.LocalAddr(), Err: err}
	if k.remote.IsValid() {
		e.Addr = k.RemoteAddr()
	}
	return e
}

// shut runs once, at the first Close or Abort.
func (k *socket) shut(end func()) {
	k.closeOnce.Do(func() {
		close(k.closed)
		end()
		k.read.stop()
		k.write.stop()
	})
}

// Close implements net.Conn, net.PacketConn and net.Listener. Calls in progress return
// net.ErrClosed. It never fails.
func (k *socket) Close() error {
	k.shut(k.ep.Close)
	return nil
}

// SetDeadline implements net.Conn.
func (k *socket) SetDeadline(t time.Time) error {
	k.read.set(t)
	k.write.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (k *socket) SetReadDeadline(t time.Time) error {
	k.read.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (k *socket) SetWriteDeadline(t time.Time) error {
	k.write.set(t)
	return nil
}

// LocalAddr implements net.Conn and net.PacketConn.
func (k *socket) LocalAddr() net.Addr { return k.netAddr(k.local) }

// RemoteAddr implements net.Conn.
func (k *socket) RemoteAddr() net.Addr { return k.netAddr(k.remote) }

func (k *socket) netAddr(a netip.AddrPort) net.Addr {
	if k.network == "udp" {
		return net.UDPAddrFromAddrPort(a)
	}
	return net.TCPAddrFromAddrPort(a)
}

// connect connects an endpoint and waits for the outcome.
func (s *Stack) connect(ctx context.Context, ep tcpip.Endpoint, wq *waiter.Queue, to netip.AddrPort) error {
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	err := ep.Connect(toFull(to))
	if _, started := err.(*tcpip.ErrConnectStarted); !started {
		return sysError(err)
	}
	select {
	case <-ready:
		return sysError(lastError(ep))
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return net.ErrClosed
	}
}

// lastError returns why a connection attempt failed; nil if it succeeded.
func lastError(ep tcpip.Endpoint) tcpip.Error {
	type hasLastError interface{ LastError() tcpip.Error }
	if l, ok := ep.(hasLastError); ok {
		return l.LastError()
	}
	return ep.SocketOptions().GetLastError()
}
