package simnet

import (
	"net/netip"
	"time"
)

// packet is a datagram in flight. Whoever ends it (a drop or the reader of a socket) must call
// Internet.release.
type packet struct {
	id       uint64
	src, dst netip.AddrPort // at this point of the path
	sentTo   netip.AddrPort // as the sender addressed it
	ttl      uint8
	payload  []byte
	origin   *Conn

	dontFragment bool
	cutTo        int // size in bytes of the IP packets into which it was fragmented; 0 means whole
}

// IP and UDP header sizes in bytes (RFC 791, RFC 8200, RFC 768).
const (
	ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8
)

// ipSize returns the size of the unfragmented IP packet in bytes.
func (p *packet) ipSize() int { return headerSize(p.dst.Addr()) + len(p.payload) }

func headerSize(dst netip.Addr) int {
	if dst.Is4() {
		return ipv4Header + udpHeader
	}
	return ipv6Header + udpHeader
}

func (p *packet) datagram() Datagram {
	return Datagram{ID: p.id, Src: p.src, Dst: p.dst, TTL: p.ttl, Payload: p.payload}
}

// ICMPKind is the kind of an ICMP error.
type ICMPKind uint8

// The ICMP errors that sockets receive.
const (
	PortUnreachable ICMPKind = iota
	TimeExceeded
	PacketTooBig
	NetworkUnreachable
	HostUnreachable
	Prohibited
)

// String returns the error's name.
func (k ICMPKind) String() string {
	switch k {
	case PortUnreachable:
		return "port unreachable"
	case TimeExceeded:
		return "time exceeded"
	case PacketTooBig:
		return "packet too big"
	case NetworkUnreachable:
		return "network unreachable"
	case HostUnreachable:
		return "host unreachable"
	case Prohibited:
		return "administratively prohibited"
	}
	return "unknown"
}

// ICMP is an error about a datagram that a socket sent.
type ICMP struct {
	Kind ICMPKind
	To   netip.AddrPort // the datagram's destination
	By   netip.Addr     // the error's source; invalid if the sender has no address
	MTU  int            // of PacketTooBig: the link's MTU, in bytes of IP packets
}

// node is a destination of packets. receive is called with the Internet locked; now is the time
// of arrival.
type node interface {
	receive(now time.Time, p *packet)
}
