package simnet

import (
	"net/netip"
	"time"
)

// packet is a datagram on its way. Whoever ends its way (a drop or the reader of a
// socket) gives it back with Internet.release.
type packet struct {
	id       uint64
	src, dst netip.AddrPort // as they are at this point of the way
	sentTo   netip.AddrPort // as the sender wrote it
	ttl      uint8
	payload  []byte
	origin   *Conn

	dontFragment bool
	cutTo        int // bytes of the IP packets it was cut to on the way; 0 = whole
}

// IP and UDP header sizes in bytes (RFC 791, RFC 8200, RFC 768).
const (
	ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8
)

// ipSize is the size of the whole IP packet in bytes.
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

// ICMP errors that sockets are told.
const (
	PortUnreachable ICMPKind = iota
	TimeExceeded
	PacketTooBig
	NetworkUnreachable
	HostUnreachable
	Prohibited
)

// String names the error.
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

// ICMP is an error that came back for a datagram that a socket sent.
type ICMP struct {
	Kind ICMPKind
	To   netip.AddrPort // where the socket had sent the datagram
	By   netip.Addr     // who says so; invalid where nothing on the way has an address
	MTU  int            // of PacketTooBig: what the link takes, in bytes of IP packets
}

// node is what a packet can arrive at. receive is called with the Internet locked; now
// is the time of arrival.
type node interface {
	receive(now time.Time, p *packet)
}
