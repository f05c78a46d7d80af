package underlay

import (
	"fmt"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The socket reports ICMP errors (IP_RECVERR, ip(7)) in two ways at once: an entry in its
// error queue, and the errno of whichever call on the socket comes next, be it to send to
// somebody else or to receive. The latter says nothing of that call: it is made again. The
// entries are taken by whoever meets the errno; unread they would use up the receive
// buffer.

// pendingErrors bounds the errors of others that one call puts up with. Only a flood of
// ICMP errors, each within a microsecond of the one before, gets further.
const pendingErrors = 256

// reportErrors asks for ICMP errors. They are for diagnosis only, so the kernel may refuse.
func reportErrors(fd int, is6 bool) {
	if is6 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
		return
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
}

// mayBePending reports whether a call's errno may be due to an ICMP error for a datagram
// that was sent before (icmp_err_convert and tab_unreach of the kernel).
func mayBePending(errno unix.Errno) bool {
	switch errno {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET,
		unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EPROTO, unix.EACCES, unix.EMSGSIZE:
		return true
	}
	return false
}

// pending reports whether a call that gave the errno is to be made again, because the
// errno was, or may well have been, that of an earlier datagram. tries counts the calls
// made again before; since is what errorsTaken was before this one.
//
// Each errno is doubted once, for the kernel drops entries that it has no room for. Not
// EMSGSIZE, which is in most cases just what it says.
func (s *socket) pending(fd uintptr, errno unix.Errno, tries int, since *uint64) bool {
	if !mayBePending(errno) {
		return false
	}
	before := *since
	*since = s.takeErrors(fd)
	return tries < pendingErrors && (*since != before || tries == 0 && errno != unix.EMSGSIZE)
}

// takeErrors empties the error queue, and gives the number of entries that were ever
// taken from it and came from the network.
func (s *socket) takeErrors(fd uintptr) uint64 {
	s.errors.Lock()
	defer s.errors.Unlock()
	for range maxErrors {
		to, e, ok := s.takeError(fd)
		if !ok {
			break
		}
		if to.IsValid() {
			s.errorsTaken.Add(1)
			s.onError(to, e)
		}
	}
	return s.errorsTaken.Load()
}

// maxErrors bounds how many errors are taken at once.
const maxErrors = 64

// takeError takes one entry; the address is invalid if it is no ICMP error. errors is held.
func (s *socket) takeError(fd uintptr) (to netip.AddrPort, e icmpError, ok bool) {
	var name unix.RawSockaddrInet6
	var control [256]byte // The error and the address of whoever sent it: 64 bytes.
	msg := unix.Msghdr{Name: (*byte)(unsafe.Pointer(&name)), Namelen: unix.SizeofSockaddrInet6, Control: &control[0]}
	msg.SetControllen(len(control))
	_, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&msg)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if errno != 0 {
		return netip.AddrPort{}, icmpError{}, false
	}
	e, fromNetwork := parseError(control[:min(int(msg.Controllen), len(control))])
	if !fromNetwork {
		return netip.AddrPort{}, icmpError{}, true
	}
	return addrOfName(&name), e, true
}

// addrOfName reads a socket address that the kernel wrote, invalid if it is of another family.
func addrOfName(name *unix.RawSockaddrInet6) netip.AddrPort {
	port := getPort(&name.Port)
	switch name.Family {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr), port)
	case unix.AF_INET6:
		addr := netip.AddrFrom16(name.Addr)
		if name.Scope_id != 0 {
			addr = addr.WithZone(strconv.FormatUint(uint64(name.Scope_id), 10))
		}
		return netip.AddrPortFrom(addr, port)
	}
	return netip.AddrPort{}
}

// parseError reads the control messages of an entry of the error queue. Errors of this
// machine, such as of a probe that is too long for the interface, are not from the network.
func parseError(control []byte) (e icmpError, fromNetwork bool) {
	for len(control) >= unix.SizeofCmsghdr {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		control = rest
		v4 := hdr.Level == unix.IPPROTO_IP && hdr.Type == unix.IP_RECVERR
		v6 := hdr.Level == unix.IPPROTO_IPV6 && hdr.Type == unix.IPV6_RECVERR
		if !v4 && !v6 || len(data) < int(unsafe.Sizeof(unix.SockExtendedErr{})) {
			continue
		}
		switch ee := (*unix.SockExtendedErr)(unsafe.Pointer(&data[0])); ee.Origin {
		case unix.SO_EE_ORIGIN_ICMP:
			e = ofICMP(ee.Type, ee.Code, ee.Info)
		case unix.SO_EE_ORIGIN_ICMP6:
			e = ofICMPv6(ee.Type, ee.Code, ee.Info)
		default:
			continue
		}
		e.by = offender(data[unsafe.Sizeof(unix.SockExtendedErr{}):])
		return e, true
	}
	return icmpError{}, false
}

// offender is who sent an ICMP error (SO_EE_OFFENDER, ip(7)), invalid if that is not told.
func offender(name []byte) netip.Addr {
	var addr unix.RawSockaddrInet6
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&addr)), unix.SizeofSockaddrInet6), name)
	return addrOfName(&addr).Addr().WithZone("")
}

// onErrors sets whom to tell of ICMP errors. It is called before the first Open.
func (b *leanBind) onErrors(tell func(to netip.AddrPort, e icmpError)) { b.onError = tell }

// memory is what SO_MEMINFO tells of a socket (sk_get_meminfo of the kernel), in bytes:
// the two buffers and what is in the first, its error queue included. And the datagrams
// that it had no room for.
type memory struct{ receive, send, queued, drops uint32 }

// memory is of the socket and those that it is spread over: the sum, of the send buffer the
// socket's own.
func (s *socket) memory() (m memory, err error) {
	if cerr := s.raw.Control(func(fd uintptr) { m, err = memoryOf(fd) }); cerr != nil {
		return memory{}, cerr
	}
	if err != nil || s.spread == nil {
		return m, err
	}
	return m, s.spread.addMemory(&m)
}

func memoryOf(fd uintptr) (memory, error) {
	var info [9]uint32 // SK_MEMINFO_VARS
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return memory{}, fmt.Errorf("get SO_MEMINFO: %w", errno)
	}
	return memory{
		receive: info[unix.SK_MEMINFO_RCVBUF], send: info[unix.SK_MEMINFO_SNDBUF],
		queued: info[unix.SK_MEMINFO_RMEM_ALLOC], drops: info[unix.SK_MEMINFO_DROPS],
	}, nil
}

// socketState gives the buffers in bytes, by the measure in which they are asked for, and
// all drops so far. A system that does not tell gives 0.
func (b *leanBind) socketState() (receive, send int, drops uint64) {
	drops = b.closedDrops.Load()
	for _, s := range []*socket{b.v4.Load(), b.v6.Load()} {
		if s == nil {
			continue
		}
		m, err := s.memory()
		if err != nil {
			continue
		}
		drops += uint64(m.drops)
		if r := int(m.receive / 2); receive == 0 || r < receive {
			receive = r
		}
		if w := int(m.send / 2); send == 0 || w < send {
			send = w
		}
	}
	return receive, send, drops
}
