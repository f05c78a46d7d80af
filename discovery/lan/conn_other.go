//go:build !linux

package lan

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	// hopLimit of everything sent (RFC 6762 §11).
	hopLimit = 255
	// writeWait bounds a send while the interface's queue is full.
	writeWait = time.Second
)

// groupConn is a socket that has joined the group on one interface. The system may deliver
// packets that were sent elsewhere; they are dropped where the system tells the destination.
type groupConn struct {
	*net.UDPConn
	group netip.AddrPort
	index int
	read  func(b []byte) (n, index int, dst net.IP, src net.Addr, err error)
}

// listen opens a socket for one family on an interface.
func listen(i Interface, f Family) (Conn, error) {
	ifi, err := net.InterfaceByIndex(i.Index)
	if err != nil {
		return nil, err
	}
	group := f.group()
	network := "udp4"
	if f == IPv6 {
		network, group = "udp6", netip.AddrPortFrom(group.Addr().WithZone(i.Name), group.Port())
	}
	u, err := net.ListenMulticastUDP(network, ifi, net.UDPAddrFromAddrPort(group))
	if err != nil {
		return nil, err
	}
	c := &groupConn{UDPConn: u, group: group, index: i.Index}
	if f == IPv4 {
		err = c.prepare4(ipv4.NewPacketConn(u))
	} else {
		err = c.prepare6(ipv6.NewPacketConn(u))
	}
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return c, nil
}

func (c *groupConn) prepare4(p *ipv4.PacketConn) error {
	// Not every system tells a packet's destination.
	_ = p.SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true)
	c.read = func(b []byte) (n, index int, dst net.IP, src net.Addr, err error) {
		n, cm, src, err := p.ReadFrom(b)
		if cm != nil {
			index, dst = cm.IfIndex, cm.Dst
		}
		return n, index, dst, src, err
	}
	return errors.Join(p.SetMulticastTTL(hopLimit), p.SetTTL(hopLimit), p.SetMulticastLoopback(true))
}

func (c *groupConn) prepare6(p *ipv6.PacketConn) error {
	_ = p.SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
	c.read = func(b []byte) (n, index int, dst net.IP, src net.Addr, err error) {
		n, cm, src, err := p.ReadFrom(b)
		if cm != nil {
			index, dst = cm.IfIndex, cm.Dst
		}
		return n, index, dst, src, err
	}
	return errors.Join(p.SetMulticastHopLimit(hopLimit), p.SetHopLimit(hopLimit), p.SetMulticastLoopback(true))
}

// ReadFrom returns the next message that was sent to the group on the interface.
func (c *groupConn) ReadFrom(b []byte) (int, netip.AddrPort, error) {
	for {
		n, index, dst, src, err := c.read(b)
		if err != nil {
			return 0, netip.AddrPort{}, err
		}
		u, ok := src.(*net.UDPAddr)
		if !ok || index != 0 && index != c.index || dst != nil && !dst.IsMulticast() {
			continue
		}
		from := u.AddrPort()
		return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), nil
	}
}

func (c *groupConn) Multicast(b []byte) error { return c.WriteTo(b, c.group) }

func (c *groupConn) WriteTo(b []byte, to netip.AddrPort) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	_, err := c.WriteToUDPAddrPort(b, to)
	return err
}
