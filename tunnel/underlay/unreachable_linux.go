package underlay

import (
	"fmt"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The socket reports ICMP errors (IP_RECVERR, ip(7)) in two ways at once: by an entry in its error
// queue, and by the errno of the next call on the socket, whether it sends elsewhere or receives.
// The errno says nothing about that call, which is repeated. Whoever gets the errno also reads the
// entries; unread they would fill the receive buffer.

// pendingErrors bounds the unrelated errors that one call skips. Only a flood of ICMP errors, a
// microsecond apart, exceeds it.
const pendingErrors = 256

// reportErrors enables ICMP errors. They only serve diagnosis, so the kernel may refuse.
func reportErrors(fd int, is6 bool) {
	if is6 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
		return
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
}

// mayBePending reports whether a call's errno may be due to an ICMP error for an earlier datagram
// (icmp_err_convert and tab_unreach in the kernel).
func mayBePending(errno unix.Errno) bool {
	switch errno {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET,
		unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EPROTO, unix.EACCES, unix.EMSGSIZE:
		return true
	}
	return false
}

// pending reports whether to repeat a call that returned the errno, because the errno was, or may
// have been, that of an earlier datagram. tries counts the repetitions so far; since is the value
// of errorsTaken before this call.
//
// Each errno is doubted once, since the kernel drops entries that it has no room for. EMSGSIZE is
// not, since it usually means what it says.
func (s *socket) pending(fd uintptr, errno unix.Errno, tries int, since *uint64) bool {
	if !mayBePending(errno) {
		return false
	}
	before := *since
	*since = s.takeErrors(fd)
	return tries < pendingErrors && (*since != before || tries == 0 && errno != unix.EMSGSIZE)
}

// takeErrors empties the error queue, and returns how many entries from the network were ever read
// from it.
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

// maxErrors bounds how many errors are read at once.
const maxErrors = 64

// takeError reads one entry; the address is invalid if it is no ICMP error. errors is held.
func (s *socket) takeError(fd uintptr) (to netip.AddrPort, e icmpError, ok bool) {
	var name unix.RawSockaddrInet6
	var control [256]byte // the error and the address of its sender: 64 bytes
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

// parseError reads the control messages of an entry of the error queue. This host's own errors,
// such as for a probe that is too long for the interface, are not from the network.
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

// offender returns the sender of an ICMP error (SO_EE_OFFENDER, ip(7)), invalid if unknown.
func offender(name []byte) netip.Addr {
	var addr unix.RawSockaddrInet6
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&addr)), unix.SizeofSockaddrInet6), name)
	return addrOfName(&addr).Addr().WithZone("")
}

// onErrors sets the function to call with ICMP errors. It is called before the first Open.
func (b *leanBind) onErrors(tell func(to netip.AddrPort, e icmpError)) { b.onError = tell }

// memory is a socket's SO_MEMINFO (sk_get_meminfo in the kernel), in bytes: the two buffers, and
// what the first holds, including the error queue. drops are the datagrams that it had no room for.
type memory struct{ receive, send, queued, drops uint32 }

// memory returns the sum over the socket and those that it is spread over, but the send buffer of
// the socket alone.
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

// socketState returns the buffer sizes in bytes, in the units of the request, and all drops so far;
// 0 if the system does not say.
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
