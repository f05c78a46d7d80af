package wan

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// tick is the minimum time that the forwarder sleeps. Packets that are due within half a tick
	// are sent at once, so deliveries are as often early as late. 100 µs are 8 full packets at 1
	// Gbit/s, which one system call can send.
	tick = 100 * time.Microsecond
	// receiveBuffer is the requested size in bytes: what two ends can send at memory speed while
	// the forwarder is not scheduled.
	receiveBuffer = 16 << 20
	// patient is how many times the socket is read before deliveries are checked again.
	patient = 8
	// priority of the forwarder's thread as a real-time thread, if permitted: the lowest. It
	// mostly sleeps, and a late forwarder lengthens the path.
	priority = 1
	// fullSize is the minimum size, in bytes, of a datagram that identifies its sender as the
	// dialling end, which sends the load: handshakes, keepalives and acknowledgements are
	// smaller. Which end speaks first is random.
	fullSize = 900
	// late is the minimum lateness for a delivery to count as late.
	late = time.Millisecond
)

// forwarder is the loop of [Serve]. It runs on one thread.
type forwarder struct {
	tunnels []tunnel
	links   [2]*Link // by the end that sends
	began   time.Time

	buffer  [1 << 16]byte
	control [64]byte
	late    uint64
	latest  time.Duration
}

// tunnel is a socket for two ends.
type tunnel struct {
	socket int
	ends   [2]unix.RawSockaddrInet4
	known  int      // number of ends that have spoken
	turned bool     // it is known which end sends: the first
	early  [][]byte // datagrams of the first end before the second has spoken
}

// forward forwards datagrams between the first two addresses that speak to each socket, one for
// each tunnel, at 127.0.0.1, until ctx ends. It writes the sockets' addresses to lines, then its
// traffic whenever asked, and at the end.
func forward(ctx context.Context, p plan, asked <-chan struct{}, lines *json.Encoder) error {
	runtime.LockOSThread() // not unlocked: the thread has its own priority and timer slack
	f := &forwarder{began: time.Now()}
	for i := range f.links {
		path := p.Path
		if i == 1 {
			path = path.back()
		}
		var err error
		if f.links[i], err = NewLink(path, p.Tunnels); err != nil {
			return err
		}
	}
	ahead := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: priority}
	_ = unix.SchedSetAttr(0, &ahead, 0)                // of this thread; fails without CAP_SYS_NICE
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // 50 µs by default
	defer f.close()
	var at ready
	for range p.Tunnels {
		address, err := f.open()
		if err != nil {
			return err
		}
		at.Addresses = append(at.Addresses, address)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	defer unix.Close(wake)
	ctx, cancel := context.WithCancel(ctx)
	var waker sync.WaitGroup
	defer waker.Wait()
	defer cancel()
	waker.Go(func() {
		for ended := false; !ended; {
			select {
			case <-asked:
			case <-ctx.Done():
				ended = true
			}
			_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // only fails if it is full
		}
	})
	if err := lines.Encode(at); err != nil {
		return fmt.Errorf("wan: tell addresses: %w", err)
	}
	for ended := false; !ended; {
		if err := f.loop(wake); err != nil {
			return err
		}
		ended = ctx.Err() != nil // read before the answer, after which it may change
		if err := lines.Encode(f.traffic()); err != nil {
			return fmt.Errorf("wan: tell traffic: %w", err)
		}
	}
	return nil
}

// open creates a tunnel's socket.
func (f *forwarder) open() (netip.AddrPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("socket", err)
	}
	f.tunnels = append(f.tunnels, tunnel{socket: fd})
	fail := func(call string, err error) (netip.AddrPort, error) {
		return netip.AddrPort{}, fmt.Errorf("wan: %w", os.NewSyscallError(call, err))
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fail("bind", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return fail("setsockopt SO_RCVBUF", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		return fail("setsockopt UDP_GRO", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fail("getsockname", err)
	}
	a := name.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), nil
}

func (f *forwarder) close() {
	for _, t := range f.tunnels {
		unix.Close(t.socket)
	}
}

// loop delivers, sleeps and receives until wake is readable, and reads it.
func (f *forwarder) loop(wake int) error {
	fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
	for _, t := range f.tunnels {
		fds = append(fds, unix.PollFd{Fd: int32(t.socket), Events: unix.POLLIN})
	}
	for {
		next, any, err := f.deliver()
		if err != nil {
			return err
		}
		var timeout *unix.Timespec
		if any {
			ts := unix.NsecToTimespec(int64(max(next-f.now(), tick)))
			timeout = &ts
		}
		if _, err := unix.Ppoll(fds, timeout, nil); err != nil && err != unix.EINTR {
			return fmt.Errorf("wan: %w", os.NewSyscallError("ppoll", err))
		}
		if fds[0].Revents != 0 {
			_, err := unix.Read(wake, f.buffer[:8])
			return os.NewSyscallError("read", err)
		}
		for i := range f.tunnels {
			if fds[i+1].Revents == 0 {
				continue
			}
			for range patient {
				if more, err := f.receive(i); err != nil {
					return err
				} else if !more {
					break
				}
			}
		}
	}
}

func (f *forwarder) now() time.Duration { return time.Since(f.began) }

// deliver sends what is due, and returns when something is due next.
func (f *forwarder) deliver() (next time.Duration, any bool, err error) {
	for i, l := range f.links {
		for {
			due, ok := l.Next()
			now := f.now()
			packets, size, number := l.Take(now + tick/2)
			if len(packets) == 0 {
				if ok && (!any || due < next) {
					next, any = due, true
				}
				break
			}
			if lateness := now - due; lateness > late {
				f.late++
				f.latest = max(f.latest, lateness)
			}
			t := &f.tunnels[number]
			if err := f.send(t.socket, &t.ends[1-i], packets, size); err != nil {
				return 0, false, err
			}
		}
	}
	return next, any, nil
}

// send makes one call for datagrams of a size; the last may be shorter.
func (f *forwarder) send(socket int, to *unix.RawSockaddrInet4, packets []byte, size int) error {
	iov := unix.Iovec{Base: &packets[0]}
	iov.SetLen(len(packets))
	m := unix.Msghdr{Name: (*byte)(unsafe.Pointer(to)), Namelen: unix.SizeofSockaddrInet4, Iov: &iov}
	m.SetIovlen(1)
	if len(packets) > size {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&f.control[0]))
		h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(2))
		*(*uint16)(unsafe.Pointer(&f.control[unix.CmsgLen(0)])) = uint16(size)
		m.Control = &f.control[0]
		m.SetControllen(unix.CmsgSpace(2))
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(socket), uintptr(unsafe.Pointer(&m)), 0)
		switch errno {
		case unix.EINTR:
		case 0, unix.ENOBUFS:
			return nil
		default:
			return fmt.Errorf("wan: send %d bytes in segments of %d: %w", len(packets), size, os.NewSyscallError("sendmsg", errno))
		}
	}
}

// receive passes the datagrams of one call to their link; false if there were none. Datagrams
// wait until the second end has spoken.
func (f *forwarder) receive(number int) (more bool, err error) {
	t := &f.tunnels[number]
	var from unix.RawSockaddrInet4
	iov := unix.Iovec{Base: &f.buffer[0]}
	iov.SetLen(len(f.buffer))
	m := unix.Msghdr{Name: (*byte)(unsafe.Pointer(&from)), Namelen: unix.SizeofSockaddrInet4, Iov: &iov, Control: &f.control[0]}
	m.SetIovlen(1)
	m.SetControllen(len(f.control))
	n, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(t.socket), uintptr(unsafe.Pointer(&m)), unix.MSG_DONTWAIT)
	switch errno {
	case 0:
	case unix.EAGAIN, unix.EINTR:
		return false, nil
	default:
		return false, fmt.Errorf("wan: %w", os.NewSyscallError("recvmsg", errno))
	}
	end := t.endOf(&from)
	if end < 0 {
		return true, nil
	}
	now, datagrams := f.now(), f.buffer[:n]
	size := segmentSize(f.control[:m.Controllen], len(datagrams))
	if end == 1 {
		for _, early := range t.early {
			f.links[0].Offer(now, number, early)
		}
		t.early = nil
	}
	if min(size, len(datagrams)) >= fullSize && t.known == len(t.ends) && !t.turned {
		t.turned = true
		if end == 1 {
			t.ends[0], t.ends[1], end = t.ends[1], t.ends[0], 0
		}
	}
	for len(datagrams) > 0 {
		k := min(size, len(datagrams))
		if t.known < len(t.ends) {
			t.early = append(t.early, slices.Clone(datagrams[:k]))
		} else {
			f.links[end].Offer(now, number, datagrams[:k])
		}
		datagrams = datagrams[k:]
	}
	return true, nil
}

// endOf returns the index of the end at an address, -1 for any other address.
func (t *tunnel) endOf(from *unix.RawSockaddrInet4) int {
	for i := range t.known {
		if t.ends[i].Addr == from.Addr && t.ends[i].Port == from.Port {
			return i
		}
	}
	if t.known == len(t.ends) {
		return -1
	}
	t.ends[t.known] = *from
	t.known++
	return t.known - 1
}

// segmentSize returns the size of the datagrams that UDP_GRO joined, or of the only one.
func segmentSize(control []byte, only int) int {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 4 {
			if size := int(*(*int32)(unsafe.Pointer(&data[0]))); size > 0 {
				return size
			}
		}
		control = rest
	}
	return only
}

// traffic returns the traffic so far.
func (f *forwarder) traffic() Traffic {
	t := Traffic{Late: f.late, Latest: f.latest}
	for i, one := range f.tunnels {
		t.Tunnels = append(t.Tunnels, TunnelTraffic{f.links[0].Counters()[i], f.links[1].Counters()[i]})
		// The last value of SO_MEMINFO is the number of datagrams that the socket dropped for
		// lack of room.
		var info [unix.SK_MEMINFO_VARS]uint32
		size := uint32(unsafe.Sizeof(info))
		if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(one.socket), unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); errno == 0 {
			t.Missed += uint64(info[unix.SK_MEMINFO_DROPS])
		}
	}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		t.CPU = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return t
}
