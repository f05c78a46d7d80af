package underlay

import (
	"errors"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

const (
	// maxSegments is what every kernel with UDP_SEGMENT takes in one call
	// (UDP_MAX_SEGMENTS was 64 before Linux 6.9; 129 gave EINVAL).
	maxSegments = 64
	// maxSegmentsBytes is the greatest UDP payload over IPv4: 65535 - 20 - 8. Segments
	// share one datagram until they leave the machine.
	maxSegmentsBytes = 65507
)

// sender is the memory of one sendmsg call; callers take turns with them.
type sender struct {
	b       *leanBind
	msg     unix.Msghdr
	iov     [maxSegments]unix.Iovec
	control []byte
	errno   unix.Errno
	write   func(fd uintptr) bool // s.try, made once
}

func newSender(b *leanBind) *sender {
	s := &sender{b: b, control: make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo)+unix.CmsgSpace(2))}
	s.write = s.try
	return s
}

func sendmsg(fd uintptr, m *unix.Msghdr) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(m)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return errno
}

// Send sends the datagrams in order, in as few system calls as their sizes allow. When
// some fail the others are sent all the same; the first error is returned.
func (b *leanBind) Send(bufs [][]byte, ep conn.Endpoint) error {
	to, ok := ep.(*leanEndpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	sock, other := b.v4.Load(), &b.v6
	if !to.Addr().Is4() {
		sock, other = b.v6.Load(), &b.v4
	}
	if sock == nil {
		if other.Load() == nil {
			return net.ErrClosed
		}
		return unix.EAFNOSUPPORT
	}
	s := b.senders.Get().(*sender)
	defer b.senders.Put(s)
	var first error
	for len(bufs) > 0 {
		n := 1
		if !sock.noSegments.Load() {
			n = run(bufs)
		}
		if err := s.sendRun(sock, to, bufs[:n]); err != nil && first == nil {
			first = err
		}
		bufs = bufs[n:]
	}
	return first
}

// run is the number of datagrams that one UDP_SEGMENT call can take: equal sizes, of
// which the last may be smaller.
func run(bufs [][]byte) int {
	size, total := len(bufs[0]), len(bufs[0])
	if size == 0 {
		return 1
	}
	n := 1
	for n < len(bufs) && n < maxSegments {
		l := len(bufs[n])
		if l == 0 || l > size || total+l > maxSegmentsBytes {
			break
		}
		total += l
		n++
		if l < size {
			break
		}
	}
	return n
}

// sendRun sends the datagrams of a run, whatever it takes:
//
//   - EMSGSIZE: the segments are longer than the link takes. One datagram a call; those
//     the kernel cuts into fragments.
//   - EINVAL with a source address of ours: it may have gone from the machine; the
//     kernel shall choose.
//   - EINVAL, EIO: the kernel or the network device cannot do UDP_SEGMENT (udp(7): no
//     checksum offload). Not used again on this socket.
func (s *sender) sendRun(sock *socket, to *leanEndpoint, bufs [][]byte) error {
	err := s.send(sock, to, bufs)
	if errors.Is(err, unix.EINVAL) && to.SrcIP().IsValid() {
		to.ClearSrc()
		err = s.send(sock, to, bufs)
	}
	if err == nil || len(bufs) == 1 {
		return err
	}
	switch {
	case errors.Is(err, unix.EMSGSIZE):
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EINVAL):
		if !sock.noSegments.Swap(true) {
			s.b.log.Warn("UDP segmentation offload is off: the kernel or the network device refused it; sending costs more CPU",
				"localAddress", sock.conn.LocalAddr().String(), "err", err)
		}
	default:
		return err
	}
	var first error
	for i := range bufs {
		if err := s.send(sock, to, bufs[i:i+1]); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// send makes one call; it waits while the socket's buffer is full.
func (s *sender) send(sock *socket, to *leanEndpoint, bufs [][]byte) error {
	for i, b := range bufs {
		s.iov[i].Base = unsafe.SliceData(b)
		s.iov[i].SetLen(len(b))
	}
	segment := 0
	if len(bufs) > 1 {
		segment = len(bufs[0])
	}
	control := appendControl(s.control[:0], to, segment)
	s.msg = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&to.name)), Namelen: to.nameLen, Iov: &s.iov[0]}
	s.msg.SetIovlen(len(bufs))
	if len(control) > 0 {
		s.msg.Control = &control[0]
		s.msg.SetControllen(len(control))
	}
	s.errno = 0
	err := sock.raw.Write(s.write)
	s.msg = unix.Msghdr{}
	clear(s.iov[:len(bufs)]) // Keep no packet from the collector.
	switch {
	case err != nil:
		return err
	case s.errno != 0:
		return os.NewSyscallError("sendmsg", s.errno)
	}
	return nil
}

// try is called by the poller; false makes it wait until the socket is writable.
func (s *sender) try(fd uintptr) bool {
	refused := false
	for {
		s.errno = s.b.sendmsg(fd, &s.msg)
		switch s.errno {
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		case unix.ECONNREFUSED:
			// The pending error of an earlier datagram; this one was not sent yet.
			if refused {
				return true
			}
			refused = true
		default:
			return true
		}
	}
}

// appendControl writes the control messages: the source address to send from, and the
// size to cut at. The interface is left to the routing table but for link-local
// addresses, which mean nothing without.
func appendControl(b []byte, to *leanEndpoint, segment int) []byte {
	if src := to.SrcIP(); src.IsValid() {
		if src.Is4() {
			var data []byte
			b, data = appendHeader(b, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
			(*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0])).Spec_dst = src.As4()
		} else {
			var data []byte
			b, data = appendHeader(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
			info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0]))
			info.Addr = src.As16()
			info.Ifindex = scopeID(src.Zone())
		}
	}
	if segment > 0 {
		var data []byte
		b, data = appendHeader(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		*(*uint16)(unsafe.Pointer(&data[0])) = uint16(segment)
	}
	return b
}

// appendHeader adds a zeroed control message and gives its data. The buffer has room.
func appendHeader(b []byte, level, typ int32, size int) (all, data []byte) {
	start := len(b)
	b = b[:start+unix.CmsgSpace(size)]
	clear(b[start:])
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[start]))
	h.Level, h.Type = level, typ
	h.SetLen(unix.CmsgLen(size))
	return b, b[start+unix.CmsgLen(0):]
}
