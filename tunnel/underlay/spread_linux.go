package underlay

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Without NET_ADMIN a socket's receive buffer is limited by net.core.rmem_max, by default 208
// KiB. That is 0.4 ms of 4 Gbit/s, less than the receiving goroutine may have to wait for a
// processor. The number of sockets has no such limit. So data is spread over several sockets on
// one port (SO_REUSEPORT, socket(7)), by its counter, so that its order can be restored.
// Everything else goes to the first socket, which also sends.

const (
	// smallBuffer is the receive buffer in bytes, in the units of the request, from which one
	// socket is enough: 1 ms of 4 Gbit/s.
	smallBuffer = 512 << 10
	// maxLanes bounds the sockets of one family: 8 × 208 KiB hold 3 ms of 4 Gbit/s.
	maxLanes = 8
	// blockShift makes blocks of 64 counters go to one socket: one UDP_SEGMENT call may send that
	// many datagrams, which loopback delivers as a whole.
	blockShift = 6
)

// lanesFor returns the number of sockets, a power of two, whose buffers add up to the wanted size.
func lanesFor(granted, wanted int) int {
	n := 1
	if granted >= smallBuffer {
		return n
	}
	for n < maxLanes && n*granted < wanted {
		n *= 2
	}
	return n
}

// spreadOut receives the socket's data on several sockets if its buffer is small. If the system
// forbids that, the socket stays as it is.
//
// The socket owns the port before it agrees to share it: a program that binds without SO_REUSEPORT,
// as we do, gets EADDRINUSE before and after (udp_lib_lport_inuse in the kernel). The group's
// indices are the order in which its sockets were bound (reuseport_add_sock).
func (b *leanBind) spreadOut(s *socket) error {
	m, err := s.memory()
	if err != nil {
		return err
	}
	n := lanesFor(int(m.receive/2), b.rcvbuf)
	if n == 1 {
		return nil
	}
	g, err := b.newSpread(s, n)
	if err != nil {
		_ = s.raw.Control(func(fd uintptr) { // exclusive again
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 0)
		})
		return fmt.Errorf("spread data over %d sockets: %w", n, err)
	}
	s.spread = g
	return nil
}

// newSpread opens n-1 further sockets.
func (b *leanBind) newSpread(first *socket, n int) (_ *spread, err error) {
	g := &spread{batch: new(batch)}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if err := g.openPoll(); err != nil {
		return nil, err
	}
	fd, err := first.consent()
	if err != nil {
		return nil, err
	}
	flows := new(flows)
	if err := g.add(first, fd, flows); err != nil {
		return nil, err
	}
	for len(g.lanes) < n {
		if fd, err = b.openFurther(first); err != nil {
			return nil, err
		}
		g.further = append(g.further, fd)
		if len(g.further) == 1 { // now there is a group
			if err := b.steer(fd, n); err != nil {
				return nil, err
			}
		}
		if err := g.add(&socket{is6: first.is6, onError: b.onError}, fd, flows); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// consent lets this user's other sockets share the socket's port. The returned descriptor is valid
// until the socket is closed.
func (s *socket) consent() (fd int, err error) {
	cerr := s.raw.Control(func(f uintptr) {
		fd = int(f)
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			err = fmt.Errorf("set SO_REUSEPORT: %w", err)
		}
	})
	if cerr != nil {
		return 0, cerr
	}
	return fd, err
}

// openFurther opens another socket on the port of the first. It is not registered with Go's poller,
// which would be woken twice for each datagram.
func (b *leanBind) openFurther(first *socket) (_ int, err error) {
	family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(first.port())})
	if first.is6 {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Port: int(first.port())}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return 0, fmt.Errorf("open a further socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := b.configure(fd, first.is6); err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, fmt.Errorf("set SO_REUSEPORT: %w", err)
	}
	if err := unix.Bind(fd, at); err != nil {
		return 0, fmt.Errorf("bind a further socket: %w", err)
	}
	return fd, nil
}

// steer installs the program that chooses among n sockets of a group. It sees the UDP payload
// (run_bpf_filter in net/core/sock_reuseport.c); if the payload is too short to load from, it
// chooses the first. Until it is installed, and for ICMP errors, the kernel chooses by the
// addresses. That matters little, since all sockets are read alike.
func steer(fd, n int) error {
	const load, word, octet = unix.BPF_LD | unix.BPF_ABS, unix.BPF_W, unix.BPF_B
	const counter = 8 // offset in a data message, little endian (whitepaper §5.4.6)
	program := []unix.SockFilter{
		{Code: load | word, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: typeData << 24, Jf: 8}, // and three zeros
		{Code: load | octet, K: counter + 1},
		{Code: unix.BPF_ALU | unix.BPF_LSH | unix.BPF_K, K: 8 - blockShift},
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		{Code: load | octet, K: counter},
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: blockShift},
		{Code: unix.BPF_ALU | unix.BPF_OR | unix.BPF_X},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: uint32(n - 1)},
		{Code: unix.BPF_RET | unix.BPF_A},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err != nil {
		return fmt.Errorf("set SO_ATTACH_REUSEPORT_CBPF: %w", err)
	}
	return nil
}

// spread receives from several sockets as if they were one. Unless stated otherwise, fields belong
// to the receiving goroutine.
type spread struct {
	*batch  // being filled by every lane
	lanes   []*lane
	current int // the lane that delivered last
	turn    int // how many times in a row
	waited  bool
	spare   [][]byte
	calls   uint64 // of recvmsg
	kept    [sessionsKept]progress
	events  [maxLanes]unix.EpollEvent
	take    func(epoll uintptr) bool // g.read, allocated once

	// An epoll instance that Go's poller waits for; immutable. Closing it waits for the end of
	// g.read.
	poll *os.File
	raw  syscall.RawConn

	mu      sync.Mutex // held while another goroutine than the receiving one uses the further sockets
	further []int      // nil once closed
}

// openPoll makes the epoll instance.
func (g *spread) openPoll() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	_ = unix.SetNonblock(fd, true) // otherwise os.File does not register it with the poller
	g.poll = os.NewFile(uintptr(fd), "epoll")
	if g.raw, err = g.poll.SyscallConn(); err != nil {
		return err
	}
	if err := g.poll.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for epoll: %w", err)
	}
	g.take = g.read
	return nil
}

// add makes a lane of a socket. epoll_wait is level-triggered, so no readiness needs to be stored;
// each datagram and error wakes Go's poller (ep_poll_callback in the kernel).
func (g *spread) add(s *socket, fd int, flows *flows) error {
	r := &receiver{s: s, control: newControl(), flows: flows, batch: g.batch}
	var err error
	cerr := g.raw.Control(func(epoll uintptr) {
		err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
			Events: unix.EPOLLIN, Fd: int32(len(g.lanes)),
		})
	})
	if cerr != nil {
		return cerr
	}
	if err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	g.lanes = append(g.lanes, &lane{receiver: r, index: len(g.lanes), fd: uintptr(fd)})
	return nil
}

// addMemory adds the memory of the further sockets.
func (g *spread) addMemory(sum *memory) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, fd := range g.further {
		m, err := memoryOf(uintptr(fd))
		if err != nil {
			return err
		}
		sum.receive += m.receive
		sum.queued += m.queued
		sum.drops += m.drops
	}
	return nil
}

// close ends receiving and closes the further sockets; the first one stays open, unused by g.
func (g *spread) close() {
	if g.poll != nil {
		_ = g.poll.Close() // waits for g.read
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, fd := range g.further {
		_ = unix.Close(fd)
	}
	g.further = nil
}
