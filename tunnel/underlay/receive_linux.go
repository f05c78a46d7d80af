package underlay

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// receiveBuffer holds what one recvmsg returns: a datagram, or with UDP_GRO up to 64 KiB of them
// joined. Datagrams are copied from this one hot buffer, instead of received into the device's
// buffers, so that only the first page of each of those 64 KiB buffers becomes resident.
const receiveBuffer = 1 << 16

// newControl has room for the local address and the size of joined datagrams.
func newControl() []byte {
	return make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo)+unix.CmsgSpace(4))
}

// batch is the result of a receive call.
type batch struct {
	packets [][]byte
	sizes   []int
	eps     []conn.Endpoint
	n       int
	errno   unix.Errno
}

// begin starts to fill another batch.
func (b *batch) begin(packets [][]byte, sizes []int, eps []conn.Endpoint) {
	*b = batch{packets: packets, sizes: sizes, eps: eps}
}

// result ends the batch and returns its size, or why it is empty. err is the poller's.
func (b *batch) result(err error) (int, error) {
	n, errno := b.n, b.errno
	*b = batch{} // keep nothing from the garbage collector
	switch {
	case n > 0:
		return n, nil
	case err != nil:
		return 0, err
	default:
		return 0, os.NewSyscallError("recvmsg", errno)
	}
}

// receiver reads one socket. Only one goroutine uses it.
type receiver struct {
	s       *socket
	buf     []byte
	control []byte
	name    unix.RawSockaddrInet6
	iov     unix.Iovec
	msg     unix.Msghdr
	flows   *flows

	// What the last recvmsg returned and no batch had room for yet.
	rest    []byte
	segment int // bytes
	from    *leanEndpoint

	*batch // being filled

	readBatch    func(fd uintptr) bool // r.read, allocated once
	readUnpolled func(fd uintptr)      // r.poll, allocated once
}

func newReceiver(s *socket) *receiver {
	r := &receiver{
		s:       s,
		buf:     make([]byte, receiveBuffer),
		control: newControl(),
		flows:   new(flows),
		batch:   new(batch),
	}
	r.readBatch, r.readUnpolled = r.read, r.poll
	return r
}

// receive is the conn.ReceiveFunc: it waits for one datagram and takes all that are there, as long
// as the batch has room.
func (r *receiver) receive(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	r.begin(packets, sizes, eps)
	r.deliver()
	if len(r.rest) > 0 {
		return r.result(nil)
	}
	err := r.s.raw.Read(r.readBatch)
	for err != nil && !errors.Is(err, net.ErrClosed) {
		if err = r.s.raw.Control(r.readUnpolled); err == nil && r.n == 0 && r.errno == 0 {
			err = r.s.raw.Read(r.readBatch)
		}
	}
	return r.result(err)
}

// read is called by the poller; false makes it wait until the socket is readable.
func (r *receiver) read(fd uintptr) bool {
	since, tries := r.s.errorsTaken.Load(), 0
	for r.n < len(r.packets) {
		n, errno := r.recvmsg(fd)
		switch errno {
		case 0:
			r.accept(n)
			r.deliver()
		case unix.EINTR:
		case unix.EAGAIN:
			return r.n > 0
		default:
			if r.s.pending(fd, errno, tries, &since) {
				tries++
				continue
			}
			r.errno = errno
			return true
		}
	}
	return true
}

// unpolledWait bounds a wait on a socket without the poller. Close waits for its end.
const unpolledWait = 10 // milliseconds

// poll is read while Go's poller considers the socket broken: until the next event, if ICMP errors
// are all that is pending, and there is no room to send either.
func (r *receiver) poll(fd uintptr) {
	r.s.takeErrors(fd) // otherwise there is nothing to wait for
	if r.read(fd) {
		return
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, unpolledWait); err == nil && n > 0 {
		r.read(fd)
	}
}

// recvmsg never blocks and takes a few microseconds, so it bypasses Go's scheduler: where datagrams
// arrive singly, as from a TURN server, that saves 3 % of a stream's time.
func (r *receiver) recvmsg(fd uintptr) (int, unix.Errno) {
	r.iov.Base = &r.buf[0]
	r.iov.SetLen(len(r.buf))
	r.msg = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&r.name)), Namelen: unix.SizeofSockaddrInet6, Iov: &r.iov, Control: &r.control[0]}
	r.msg.SetIovlen(1)
	r.msg.SetControllen(len(r.control))
	n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.msg)), unix.MSG_DONTWAIT)
	return int(n), errno
}

// accept takes the datagrams of one recvmsg.
func (r *receiver) accept(n int) {
	local, segment := parseControl(r.control[:r.msg.Controllen])
	if n == 0 { // an empty datagram takes its own slot, to be counted
		r.sizes[r.n], r.eps[r.n] = 0, newLeanEndpoint(r.remote(), netip.Addr{})
		r.n++
		return
	}
	if segment <= 0 {
		segment = n
	}
	key := flowKey{port: getPort(&r.name.Port), local: local.As16()}
	if r.s.is6 {
		key.remote, key.scope = r.name.Addr, r.name.Scope_id
	} else {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&r.name))
		copy(key.remote[:], sa.Addr[:])
	}
	r.from = r.flows.endpoint(key, r.buf[0] == typeData, func() *leanEndpoint {
		return newLeanEndpoint(r.remote(), local)
	})
	r.rest, r.segment = r.buf[:n], segment
}

// deliver copies datagrams into the batch while it has room.
func (r *receiver) deliver() {
	for r.n < len(r.packets) && len(r.rest) > 0 {
		size := min(r.segment, len(r.rest))
		r.sizes[r.n] = copy(r.packets[r.n], r.rest[:size])
		r.eps[r.n] = r.from
		r.rest = r.rest[size:]
		r.n++
	}
}

// remote is the source of the last recvmsg.
func (r *receiver) remote() netip.AddrPort {
	port := getPort(&r.name.Port)
	if !r.s.is6 {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&r.name))
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), port)
	}
	addr := netip.AddrFrom16(r.name.Addr)
	if r.name.Scope_id != 0 {
		addr = addr.WithZone(strconv.FormatUint(uint64(r.name.Scope_id), 10))
	}
	return netip.AddrPortFrom(addr, port)
}

// parseControl returns the local address that was sent to, and the size of the datagrams that
// UDP_GRO joined, 0 if there is just one.
func parseControl(control []byte) (local netip.Addr, segment int) {
	for len(control) >= unix.SizeofCmsghdr {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		switch {
		case hdr.Level == unix.IPPROTO_IP && hdr.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			local = netip.AddrFrom4((*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0])).Spec_dst)
		case hdr.Level == unix.IPPROTO_IPV6 && hdr.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0]))
			local = netip.AddrFrom16(info.Addr)
			if local.IsLinkLocalUnicast() {
				local = local.WithZone(strconv.FormatUint(uint64(info.Ifindex), 10))
			}
		case hdr.Level == unix.SOL_UDP && hdr.Type == unix.UDP_GRO && len(data) >= 4:
			segment = int(*(*int32)(unsafe.Pointer(&data[0])))
		}
		control = rest
	}
	if local.IsMulticast() || local.IsUnspecified() {
		local = netip.Addr{}
	}
	return local, segment
}
