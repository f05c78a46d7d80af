package underlay

import (
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

const (
	// maxSegments is what every kernel with UDP_SEGMENT accepts in one call (UDP_MAX_SEGMENTS was
	// 64 before Linux 6.9; 129 gave EINVAL).
	maxSegments = 64
	// maxSegmentsBytes bounds the UDP payload of a call. Segments share one frame until they leave
	// the host, unless the frame has gso_max_size bytes, by default 65536, or more: then the
	// kernel cuts it before it sends it, which costs what separate calls would
	// (gso_features_check). So it is a byte less, without headers for Ethernet (14), a VLAN (4),
	// IPv6 (40) and UDP (8).
	maxSegmentsBytes = 65535 - 14 - 4 - 40 - 8
)

// sender holds the memory of one sendmsg call; callers take turns.
type sender struct {
	b       *leanBind
	sock    *socket // of the call
	msg     unix.Msghdr
	iov     [maxSegments]unix.Iovec
	control []byte
	errno   unix.Errno
	whole   bool                  // an IPv4 probe that must not be fragmented
	write   func(fd uintptr) bool // s.try, allocated once
}

func newSender(b *leanBind) *sender {
	// A source address, and either the segments' size or a probe's two options.
	s := &sender{b: b, control: make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo)+2*unix.CmsgSpace(4))}
	s.write = s.try
	return s
}

func sendmsg(fd uintptr, m *unix.Msghdr) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(m)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return errno
}

// Send sends the datagrams in order, in as few system calls as their sizes allow. If some fail the
// others are still sent; the first error is returned.
func (b *leanBind) Send(bufs [][]byte, ep conn.Endpoint) error {
	to, ok := ep.(*leanEndpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	sock, err := b.socketFor(to)
	if err != nil {
		return err
	}
	s := b.senders.Get().(*sender)
	defer b.senders.Put(s)
	var first error
	for len(bufs) > 0 {
		n := 1
		if !sock.noSegments.Load() && !to.tooLong(len(bufs[0]), b.routes.Load()) {
			n = run(bufs)
		}
		if err := s.sendRun(sock, to, bufs[:n]); err != nil && first == nil {
			first = err
		}
		bufs = bufs[n:]
	}
	return first
}

// socketFor returns the socket of the endpoint's address family.
func (b *leanBind) socketFor(to *leanEndpoint) (*socket, error) {
	sock, other := b.v4.Load(), &b.v6
	if !to.Addr().Is4() {
		sock, other = b.v6.Load(), &b.v4
	}
	switch {
	case sock != nil:
		return sock, nil
	case other.Load() == nil:
		return nil, net.ErrClosed
	default:
		return nil, unix.EAFNOSUPPORT
	}
}

// run returns how many datagrams one UDP_SEGMENT call can send: equal sizes, except that the last
// may be smaller.
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

// send makes one call; it waits while the socket's buffer is full.
func (s *sender) send(sock *socket, to *leanEndpoint, bufs [][]byte) error {
	segment := 0
	if len(bufs) > 1 {
		segment = len(bufs[0])
	}
	return s.call(sock, to, bufs, appendControl(s.control[:0], to, segment))
}

// call is send with the given control messages.
func (s *sender) call(sock *socket, to *leanEndpoint, bufs [][]byte, control []byte) error {
	for i, b := range bufs {
		s.iov[i].Base = unsafe.SliceData(b)
		s.iov[i].SetLen(len(b))
	}
	s.msg = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&to.name)), Namelen: to.nameLen, Iov: &s.iov[0]}
	s.msg.SetIovlen(len(bufs))
	if len(control) > 0 {
		s.msg.Control = &control[0]
		s.msg.SetControllen(len(control))
	}
	s.errno, s.sock = 0, sock
	err := sock.raw.Write(s.write)
	s.msg, s.sock = unix.Msghdr{}, nil
	clear(s.iov[:len(bufs)]) // keep no packet from the garbage collector
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
	since, tries := s.sock.errorsTaken.Load(), 0
	for {
		if s.whole {
			s.errno = sendWhole(fd, &s.msg, s.b.sendmsg)
		} else {
			s.errno = s.b.sendmsg(fd, &s.msg)
		}
		switch s.errno {
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		case 0:
			return true
		case unix.ENOBUFS:
			// A queue on the way out was full, which is a loss like any other. The kernel reports
			// it only if ICMP errors are enabled.
			s.errno = 0
			return true
		default:
			if !s.sock.pending(fd, s.errno, tries, &since) {
				return true
			}
			tries++
		}
	}
}

// appendControl writes the control messages: the source address to send from, and the segment size.
// The routing table chooses the interface, except for link-local addresses, which mean nothing
// without one.
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

// appendHeader adds a zeroed control message and returns its data. The buffer has room.
func appendHeader(b []byte, level, typ int32, size int) (all, data []byte) {
	start := len(b)
	b = b[:start+unix.CmsgSpace(size)]
	clear(b[start:])
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[start]))
	h.Level, h.Type = level, typ
	h.SetLen(unix.CmsgLen(size))
	return b, b[start+unix.CmsgLen(0):]
}
