package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reading sockets of the net package takes a goroutine each, with its stack: ten times the other
// costs of a flow. So there is one goroutine for all, and the kernel's buffers are the flows'
// queues: what does not fit is dropped there, and delays nobody else.

const (
	// maxDatagram is more than UDP can carry.
	maxDatagram = 64 << 10
	// turn is how many datagrams are read from a socket before the next one.
	turn = 64
)

// sockets reads UDP sockets. The zero value is ready.
type sockets struct {
	mu sync.Mutex
	on *poller // nil while there are no sockets
}

// poller has one goroutine while it has sockets.
type poller struct {
	file *os.File // the epoll instance, which Go's own waits for
	fd   int
	mu   sync.Mutex
	open map[int32]*socket
}

// socket is a UDP socket, which may be connected.
type socket struct {
	from *sockets
	to   receiver
	v4   bool
	conn bool

	mu     sync.RWMutex // held over system calls, none of which waits: a closed number may be another file's
	fd     int
	closed bool
}

// openFiles is how many files the process may have open.
func openFiles() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Cur > 1<<30 {
		return 1 << 30
	}
	return int64(l.Cur)
}

// dial opens a connected socket.
func (s *sockets) dial(to netip.AddrPort, r receiver) (*socket, error) {
	c, err := s.open(to, r, true, func(fd int, a unix.Sockaddr) error { return unix.Connect(fd, a) })
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "udp", Addr: net.UDPAddrFromAddrPort(to), Err: err}
	}
	return c, nil
}

// listen opens an unconnected socket.
func (s *sockets) listen(at netip.AddrPort, r receiver) (*socket, error) {
	c, err := s.open(at, r, false, func(fd int, a unix.Sockaddr) error {
		var err error
		if at.Addr().Is4() { // To hear of ICMP errors, on the queue of errors (ip(7)).
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
		} else {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
		}
		return errors.Join(err, unix.Bind(fd, a))
	})
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "udp", Addr: net.UDPAddrFromAddrPort(at), Err: err}
	}
	return c, nil
}

func (s *sockets) open(at netip.AddrPort, r receiver, conn bool, set func(int, unix.Sockaddr) error) (*socket, error) {
	c := &socket{from: s, to: r, v4: at.Addr().Is4(), conn: conn}
	domain := unix.AF_INET6
	if c.v4 {
		domain = unix.AF_INET
	}
	var err error
	if c.fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err = set(c.fd, sockaddr(at)); err == nil {
		err = s.add(c)
	}
	if err != nil {
		_ = unix.Close(c.fd)
		return nil, err
	}
	return c, nil
}

// add starts reading a socket.
func (s *sockets) add(c *socket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on == nil {
		p, err := newPoller()
		if err != nil {
			return err
		}
		s.on = p
	}
	p := s.on
	p.mu.Lock()
	p.open[int32(c.fd)] = c
	p.mu.Unlock()
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)}); err != nil {
		s.forgetLocked(c)
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// forgetLocked removes a socket from the poller, and ends the poller if it was the last.
func (s *sockets) forgetLocked(c *socket) {
	p := s.on
	p.mu.Lock()
	delete(p.open, int32(c.fd))
	left := len(p.open)
	p.mu.Unlock()
	if left == 0 {
		s.on = nil
		go func() { _ = p.file.Close() }() // It waits for the poller, which may be who closes the last.
	}
}

// close is safe to call more than once.
func (c *socket) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.from.mu.Lock()
	c.from.forgetLocked(c)
	c.from.mu.Unlock()
	_ = unix.Close(c.fd)
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // For os.NewFile, which then waits for it as for a socket.
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &poller{file: os.NewFile(uintptr(fd), "epoll"), fd: fd, open: make(map[int32]*socket)}
	raw, err := p.file.SyscallConn()
	if err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("wait for sockets: %w", err)
	}
	go p.run(raw)
	return p, nil
}

// run reads sockets until the poller is closed.
func (p *poller) run(raw syscall.RawConn) {
	events, buf, oob := make([]unix.EpollEvent, 64), make([]byte, maxDatagram), make([]byte, 512)
	_ = raw.Read(func(fd uintptr) bool { // It ends when the file is closed.
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 {
				return false
			}
			for _, e := range events[:n] {
				p.mu.Lock()
				c := p.open[e.Fd]
				p.mu.Unlock()
				if c == nil {
					continue
				}
				if e.Events&unix.EPOLLERR != 0 && !c.conn {
					c.errors(buf, oob)
				}
				c.ready(buf)
			}
		}
	})
}

// ready reads the datagrams that have arrived, at most turn of them.
func (c *socket) ready(buf []byte) {
	for range turn {
		n, from, err := c.receive(buf)
		switch {
		case err == nil:
			c.to.datagram(from, buf[:n])
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN), errors.Is(err, net.ErrClosed):
			return
		case c.conn && errors.Is(err, unix.ECONNREFUSED):
			c.to.refused(netip.AddrPort{})
		}
	}
}

func (c *socket) receive(buf []byte) (int, netip.AddrPort, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return 0, netip.AddrPort{}, net.ErrClosed
	}
	if c.conn {
		n, err := unix.Read(c.fd, buf)
		return n, netip.AddrPort{}, err
	}
	n, from, err := unix.Recvfrom(c.fd, buf, 0)
	return n, addrOf(from), err
}

// errors reads the error queue, which names the destination of each datagram that failed.
func (c *socket) errors(buf, oob []byte) {
	for range turn {
		c.mu.RLock()
		if c.closed {
			c.mu.RUnlock()
			return
		}
		_, n, _, to, err := unix.Recvmsg(c.fd, buf, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		c.mu.RUnlock()
		if err != nil {
			return
		}
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil {
			continue
		}
		for _, m := range messages { // struct sock_extended_err begins with its errno (ip(7)).
			if len(m.Data) >= 4 && syscall.Errno(binary.NativeEndian.Uint32(m.Data)) == unix.ECONNREFUSED {
				c.to.refused(addrOf(to))
			}
		}
	}
}

// sendTo sends a datagram, if there is room for it; to is invalid for a connected socket.
func (c *socket) sendTo(b []byte, to netip.AddrPort) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return net.ErrClosed
	}
	if c.conn {
		_, err := unix.Write(c.fd, b)
		return err
	}
	a := sockaddr(to)
	err := unix.Sendto(c.fd, b, 0, a)
	for tries := 0; errors.Is(err, unix.ECONNREFUSED) && tries < turn; tries++ { // that of others, before
		err = unix.Sendto(c.fd, b, 0, a)
	}
	return err
}

// local returns the socket's address.
func (c *socket) local() netip.AddrPort {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return netip.AddrPort{}
	}
	a, err := unix.Getsockname(c.fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return addrOf(a)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	out := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if zone := a.Addr().Zone(); zone != "" {
		if i, err := net.InterfaceByName(zone); err == nil {
			out.ZoneId = uint32(i.Index)
		}
	}
	return out
}

func addrOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		addr := netip.AddrFrom16(a.Addr)
		if a.ZoneId != 0 {
			if i, err := net.InterfaceByIndex(int(a.ZoneId)); err == nil {
				addr = addr.WithZone(i.Name)
			}
		}
		return netip.AddrPortFrom(addr, uint16(a.Port))
	}
	return netip.AddrPort{}
}
