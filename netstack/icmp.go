package netstack

import (
	"encoding/binary"
	"net/netip"
)

// ICMP errors reach TCP and UDP sockets by the packet that they quote. gVisor checks neither who
// sends them nor their position in the stream: a quoted port pair is enough to end a connection
// attempt, and a "packet too big" with an MTU below the protocol's minimum makes a connection send
// one-byte segments for the rest of its life. The overlay has no routers between peers, so an error
// about a packet can come only from the packet's destination. Others are forged or useless, and are
// dropped here.
const (
	protocolICMPv4 = 1
	protocolICMPv6 = 58

	// icmpHeaderLen is the part of an error before the quote (RFC 792, RFC 4443 §3).
	icmpHeaderLen = 8

	icmpv6PacketTooBig   = 2
	icmpv6FirstInfo      = 128 // lower types are errors (RFC 4443 §2.1)
	icmpv4Unreachable    = 3
	icmpv4FragNeeded     = 4 // code of icmpv4Unreachable
	minMTUv4             = 576
	extensionHopByHop    = 0
	extensionRouting     = 43
	extensionFragment    = 44
	extensionDestination = 60
)

// forgedError reports whether an inner packet is an ICMP error that does not come from the quoted
// packet's destination, or one with an MTU below the protocol's minimum. The packet has a whole IP
// header.
func forgedError(packet []byte, src netip.Addr) bool {
	if src.Is4() {
		return forgedErrorV4(packet, src)
	}
	return forgedErrorV6(packet, src)
}

func forgedErrorV4(packet []byte, src netip.Addr) bool {
	if packet[ipv4Proto] != protocolICMPv4 || binary.BigEndian.Uint16(packet[ipv4Fragment:])&0x1fff != 0 {
		return false // another protocol, or not the first fragment (RFC 791 §3.1)
	}
	icmp := after(packet, int(packet[0]&0x0f)*4)
	if len(icmp) == 0 {
		return false // too short for gVisor as well
	}
	switch icmp[0] {
	case icmpv4Unreachable, 4, 5, 11, 12: // RFC 792: the types that quote a packet
	default:
		return false
	}
	quoted := after(icmp, icmpHeaderLen)
	if len(quoted) < ipv4HeaderLen || netip.AddrFrom4([4]byte(quoted[ipv4Dst:ipv4Dst+4])) != src {
		return true
	}
	return icmp[0] == icmpv4Unreachable && icmp[1] == icmpv4FragNeeded && binary.BigEndian.Uint16(icmp[6:]) < minMTUv4
}

func forgedErrorV6(packet []byte, src netip.Addr) bool {
	icmp, ok := icmpv6Of(packet)
	if !ok || icmp[0] >= icmpv6FirstInfo {
		return false
	}
	quoted := after(icmp, icmpHeaderLen)
	if len(quoted) < ipv6HeaderLen || netip.AddrFrom16([16]byte(quoted[ipv6Dst:ipv6Dst+16])) != src {
		return true
	}
	return icmp[0] == icmpv6PacketTooBig && binary.BigEndian.Uint32(icmp[4:]) < MinMTU
}

// icmpv6Of finds an ICMPv6 message behind the extension headers that gVisor reads, too.
func icmpv6Of(packet []byte) ([]byte, bool) {
	icmp, _, ok := ipv6Payload(packet, protocolICMPv6)
	return icmp, ok
}

// ipv6Payload finds the payload of a protocol in an IPv6 packet, behind the extension headers that
// gVisor reads, too. In a fragmented packet it finds the first piece only.
func ipv6Payload(packet []byte, protocol byte) (payload []byte, fragmented, ok bool) {
	next, rest := packet[ipv6NextHeader], packet[ipv6HeaderLen:]
	for len(rest) > 0 {
		switch next {
		case protocol:
			return rest, fragmented, true
		case extensionHopByHop, extensionRouting, extensionDestination:
			if len(rest) < 2 {
				return nil, false, false
			}
			next, rest = rest[0], after(rest, (int(rest[1])+1)*8) // RFC 8200 §4.3
		case extensionFragment:
			if len(rest) < 8 || binary.BigEndian.Uint16(rest[2:])>>3 != 0 {
				return nil, false, false // RFC 8200 §4.5: the protocol's header is in the first fragment
			}
			fragmented = fragmented || rest[3]&1 != 0
			next, rest = rest[0], rest[8:]
		default:
			return nil, false, false
		}
	}
	return nil, false, false
}

// after returns what follows n bytes; nil if nothing does.
func after(b []byte, n int) []byte {
	if n > len(b) {
		return nil
	}
	return b[n:]
}
