package lan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// hopLimit of everything sent (RFC 6762 §11).
const hopLimit = 255

// groupConn is a socket that is bound to the group on one interface, so that nothing else reaches
// it. Other programs' sockets on the same port get their own copies.
type groupConn struct {
	*net.UDPConn
	group netip.AddrPort
}

// listen opens a socket for one family on an interface.
func listen(i Interface, f Family) (Conn, error) {
	domain := unix.AF_INET
	if f == IPv6 {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := prepare(fd, i.Index, f); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), "multicast DNS")
	defer file.Close() // FilePacketConn has a duplicate
	c, err := net.FilePacketConn(file)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UDPConn)
	if !ok {
		return nil, errors.Join(errors.New("no UDP socket came of it"), c.Close())
	}
	group := f.group()
	if f == IPv6 {
		group = netip.AddrPortFrom(group.Addr().WithZone(i.Name), group.Port())
	}
	return &groupConn{u, group}, nil
}

// prepare sets the options, binds to the group on the interface and joins it.
func prepare(fd, index int, f Family) error {
	type option struct {
		name         string
		level, which int
		value        int
	}
	options := []option{
		// Both, since other programs on the port may have set either.
		{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		{"SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
	}
	var bind unix.Sockaddr
	if f == IPv4 {
		bind = &unix.SockaddrInet4{Port: mdnsPort, Addr: f.group().Addr().As4()}
		options = append(options,
			// Only from interfaces where this socket has joined.
			option{"IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0},
			option{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, hopLimit},
			option{"IP_TTL", unix.IPPROTO_IP, unix.IP_TTL, hopLimit},
			// Other programs on this host should hear it as well.
			option{"IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1},
		)
	} else {
		bind = &unix.SockaddrInet6{Port: mdnsPort, Addr: f.group().Addr().As16(), ZoneId: uint32(index)}
		options = append(options,
			option{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
			option{"IPV6_MULTICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hopLimit},
			option{"IPV6_UNICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit},
			option{"IPV6_MULTICAST_LOOP", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 1},
			option{"IPV6_MULTICAST_IF", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index},
		)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.which, o.value); err != nil {
			return fmt.Errorf("set %s: %w", o.name, err)
		}
	}
	if err := unix.Bind(fd, bind); err != nil {
		return fmt.Errorf("bind to %s: %w", f.group(), err)
	}
	return join(fd, index, f)
}

func join(fd, index int, f Family) error {
	var err error
	if f == IPv4 {
		m := &unix.IPMreqn{Multiaddr: f.group().Addr().As4(), Ifindex: int32(index)}
		if err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, m); err == nil {
			err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, m)
		}
	} else {
		m := &unix.IPv6Mreq{Multiaddr: f.group().Addr().As16(), Interface: uint32(index)}
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, m)
	}
	if err != nil {
		return fmt.Errorf("join %s: %w", f.group().Addr(), err)
	}
	return nil
}

// ReadFrom returns the next message. Errors about earlier messages, such as an ICMP error about
// an answer, are ignored.
func (c *groupConn) ReadFrom(b []byte) (int, netip.AddrPort, error) {
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err == nil {
			return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), nil
		}
		if !passing(err) {
			return 0, netip.AddrPort{}, err
		}
	}
}

// passing reports whether the socket still works after the error.
func passing(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EMSGSIZE)
}

// writeWait bounds a send while the interface's queue is full.
const writeWait = time.Second

func (c *groupConn) Multicast(b []byte) error { return c.WriteTo(b, c.group) }

func (c *groupConn) WriteTo(b []byte, to netip.AddrPort) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	_, err := c.WriteToUDPAddrPort(b, to)
	return err
}
