package underlay

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// probe sends one datagram with its own options.
//
// The TTL is passed as a control message, and so is IPv6's DF. IPv4 has no control message for DF,
// so the socket's option is changed around the one call. What other goroutines send in that moment
// has DF set, too; for datagrams too long for the interface, see sendOne.
func (b *leanBind) probe(p []byte, ep conn.Endpoint, o SendOptions) error {
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
	if o.DontFragment && !sock.is6 {
		sock.probing.Lock()
		defer sock.probing.Unlock()
		s.whole = true
		defer func() { s.whole = false }()
	}
	err = s.call(sock, to, [][]byte{p}, s.probeControl(sock, to, o))
	if sourceGone(err) && to.SrcIP().IsValid() {
		to.ClearSrc()
		err = s.call(sock, to, [][]byte{p}, s.probeControl(sock, to, o))
	}
	return err
}

// probeControl writes the control messages of a probe: see appendControl.
func (s *sender) probeControl(sock *socket, to *leanEndpoint, o SendOptions) []byte {
	control := appendControl(s.control[:0], to, 0)
	if o.TTL > 0 && sock.is6 {
		control = appendInt(control, unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, o.TTL)
	} else if o.TTL > 0 {
		control = appendInt(control, unix.IPPROTO_IP, unix.IP_TTL, o.TTL)
	}
	if o.DontFragment && sock.is6 {
		control = appendInt(control, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1)
	}
	return control
}

// sendWhole sends with DF set, even if the datagram is longer than the kernel's idea of the path
// MTU (IP_PMTUDISC_PROBE, ip(7)): the probe is to measure it.
func sendWhole(fd uintptr, m *unix.Msghdr, send func(uintptr, *unix.Msghdr) unix.Errno) unix.Errno {
	if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE); err != nil {
		errno := unix.EINVAL
		errors.As(err, &errno)
		return errno
	}
	errno := send(fd, m)
	// As in configure; what could be set can be set again.
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	return errno
}

func appendInt(b []byte, level, typ int32, v int) []byte {
	b, data := appendHeader(b, level, typ, 4)
	*(*int32)(unsafe.Pointer(&data[0])) = int32(v)
	return b
}
