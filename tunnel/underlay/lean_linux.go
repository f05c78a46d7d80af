package underlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// leanBatch is the maximum number of datagrams per receive call. 64 beats 128: the device touches a
// 64 KiB buffer per datagram, and UDP_GRO joins up to 64 segments.
const leanBatch = 64

// leanBind is the Bind for Linux.
type leanBind struct {
	log            *slog.Logger
	rcvbuf, sndbuf int // bytes
	maxPerSocket   int // bytes; 0: unlimited
	senders        sync.Pool
	// System calls, replaced in tests.
	sendmsg func(fd uintptr, m *unix.Msghdr) unix.Errno
	steer   func(fd, sockets int) error

	onError func(netip.AddrPort, icmpError) // called with ICMP errors

	routes      atomic.Uint32 // counts route changes
	closedDrops atomic.Uint64 // datagrams that closed sockets dropped

	v4, v6 atomic.Pointer[socket] // nil while closed or not supported by the kernel
}

var _ network = (*leanBind)(nil)

// socket is the socket of one address family.
type socket struct {
	conn *net.UDPConn
	raw  syscall.RawConn
	is6  bool
	// noSegments is set once the kernel or the device has rejected UDP_SEGMENT.
	noSegments atomic.Bool
	spread     *spread // receives instead of this socket alone; nil for none
	// probing is held while an IPv4 probe sets DF on the socket.
	probing sync.Mutex

	onError     func(netip.AddrPort, icmpError)
	errors      sync.Mutex    // held while the error queue is read
	errorsTaken atomic.Uint64 // ICMP errors read from it
}

func newLean(o Options) *leanBind {
	b := &leanBind{
		log: o.Logger, rcvbuf: o.ReceiveBuffer, sndbuf: o.SendBuffer, maxPerSocket: o.MaxPerSocket,
		sendmsg: sendmsg, steer: steer, onError: func(netip.AddrPort, icmpError) {},
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.rcvbuf <= 0 {
		b.rcvbuf = defaultSocketBuffer
	}
	if b.sndbuf <= 0 {
		b.sndbuf = defaultSocketBuffer
	}
	b.senders.New = func() any { return newSender(b) }
	return b
}

// openTries bounds the search for a port that is free in both families.
const openTries = 100

func (b *leanBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	for try := 1; ; try++ {
		fns, actual, err := b.open(port)
		if port == 0 && errors.Is(err, unix.EADDRINUSE) && try < openTries {
			continue // the port that IPv4 got is taken on IPv6
		}
		return fns, actual, err
	}
}

// open binds both families to one port. A family that the kernel lacks is left out.
func (b *leanBind) open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	v4, err4 := b.listen("udp4", port)
	if err4 != nil && !familyMissing(err4) {
		return nil, 0, err4
	}
	if v4 != nil {
		port = v4.port()
	}
	v6, err6 := b.listen("udp6", port)
	if err6 != nil && !familyMissing(err6) {
		if v4 != nil {
			_ = v4.close()
		}
		return nil, 0, err6
	}
	var fns []conn.ReceiveFunc
	if v4 != nil {
		fns = append(fns, b.receiveFunc(v4))
	}
	if v6 != nil {
		port = v6.port()
		fns = append(fns, b.receiveFunc(v6))
	}
	if len(fns) == 0 {
		return nil, 0, errors.Join(err4, err6)
	}
	b.v4.Store(v4)
	b.v6.Store(v6)
	return fns, port, nil
}

func familyMissing(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EPROTONOSUPPORT)
}

func (b *leanBind) listen(network string, port uint16) (*socket, error) {
	lc := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) { err = b.configure(int(fd), network == "udp6") }); cerr != nil {
			return cerr
		}
		return err
	}}
	c, err := lc.ListenPacket(context.Background(), network, ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	s := &socket{conn: c.(*net.UDPConn), is6: network == "udp6", onError: b.onError}
	if s.raw, err = s.conn.SyscallConn(); err != nil {
		_ = c.Close()
		return nil, err
	}
	if err := s.raw.Control(func(fd uintptr) {
		_, serr := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		s.noSegments.Store(serr != nil)
	}); err != nil {
		_ = c.Close()
		return nil, err
	}
	return s, nil
}

// configure sets the socket's options. Buffers and UDP_GRO only improve performance, so the kernel
// may refuse them. Routers may fragment what we send (no DF, and no errors about it): data must
// arrive even if the MTU was overestimated.
func (b *leanBind) configure(fd int, is6 bool) error {
	rcvbuf := b.rcvbuf
	if b.maxPerSocket > 0 {
		rcvbuf = min(rcvbuf, b.maxPerSocket)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, rcvbuf) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, rcvbuf)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, b.sndbuf) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, b.sndbuf)
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	reportErrors(fd, is6)
	if is6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fmt.Errorf("set IPV6_V6ONLY: %w", err)
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1); err != nil {
			return fmt.Errorf("set IPV6_RECVPKTINFO: %w", err)
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT); err != nil {
			return fmt.Errorf("set IPV6_MTU_DISCOVER: %w", err)
		}
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT); err != nil {
		return fmt.Errorf("set IP_MTU_DISCOVER: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1); err != nil {
		return fmt.Errorf("set IP_PKTINFO: %w", err)
	}
	return nil
}

// receiveFunc returns the receive function of a family.
func (b *leanBind) receiveFunc(s *socket) conn.ReceiveFunc {
	if err := b.spreadOut(s); err != nil {
		b.log.Debug("receiving on one socket per address family", "error", err)
	}
	if s.spread != nil {
		return s.spread.receive
	}
	return newReceiver(s).receive
}

// close waits for the users of the socket.
func (s *socket) close() error {
	if s.spread != nil {
		s.spread.close()
	}
	return s.conn.Close()
}

func (s *socket) port() uint16 { return uint16(s.conn.LocalAddr().(*net.UDPAddr).Port) }

func (b *leanBind) Close() error {
	var errs []error
	for _, p := range []*atomic.Pointer[socket]{&b.v4, &b.v6} {
		if s := p.Swap(nil); s != nil {
			if m, err := s.memory(); err == nil {
				b.closedDrops.Add(uint64(m.drops))
			}
			errs = append(errs, s.close())
		}
	}
	return errors.Join(errs...)
}

func (b *leanBind) SetMark(mark uint32) error {
	for _, p := range []*atomic.Pointer[socket]{&b.v4, &b.v6} {
		s := p.Load()
		if s == nil {
			continue
		}
		var err error
		if cerr := s.raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark))
		}); cerr != nil {
			return cerr
		}
		if err != nil {
			return fmt.Errorf("set SO_MARK to %d: %w", mark, err)
		}
	}
	return nil
}

func (b *leanBind) BatchSize() int { return leanBatch }

func (b *leanBind) ParseEndpoint(s string) (conn.Endpoint, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	return b.endpoint(a), nil
}

func (b *leanBind) endpoint(a netip.AddrPort) conn.Endpoint { return newLeanEndpoint(a, netip.Addr{}) }
