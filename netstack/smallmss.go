package netstack

import (
	"encoding/binary"
	"iter"
)

// A peer's SYN says how large our segments may be. gVisor believes anything from 48 bytes up, for
// the life of the connection: a megabyte would leave in twenty thousand packets. No host needs less
// than what fits the smallest MTU that a path may have here ([MinPathMTU]): 536 bytes over IPv4,
// which is also the default of RFC 9293 §3.7.1, and 516 over IPv6. (1220, what IPv6's smallest link
// leaves, would refuse peers that clamp to a path below 1280.) SYNs that ask for less are dropped.
const (
	minMSSv4 = MinPathMTU - ipv4HeaderLen - tcpHeaderLen
	minMSSv6 = MinPathMTU - ipv6HeaderLen - tcpHeaderLen

	tcpOptionEnd        = 0
	tcpOptionNOP        = 1
	tcpOptionMSS        = 2
	tcpOptionSACK       = 5 // RFC 2018 §3
	tcpOptionTimestamps = 8 // RFC 7323 §3.2
	maxTCPHeader        = 60
)

// smallMSS reports whether an inbound packet is a SYN that asks for segments below the minimum, or
// may be one: gVisor reassembles fragments only after this check. No honest SYN is fragmented, nor
// is a TCP header (RFC 1858 §3).
func smallMSS(packet []byte) bool {
	tcp, fragmented := tcpOf(packet)
	switch {
	case len(tcp) == 0:
		return false
	case fragmented:
		return len(tcp) < maxTCPHeader || tcp[tcpFlags]&flagSYN != 0
	case len(tcp) < tcpHeaderLen || tcp[tcpFlags]&flagSYN == 0:
		return false
	}
	least := uint16(minMSSv6)
	if packet[0]>>4 == 4 {
		least = minMSSv4
	}
	for value := range mssOptions(tcp) {
		if binary.BigEndian.Uint16(value) < least {
			return true
		}
	}
	return false
}

// mssOptions returns the values of a segment's MSS options (RFC 9293 §3.2), two bytes each: a
// receiver may use the first or the last. The segment has a whole header.
func mssOptions(tcp []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, o := range tcpOptions(tcp) {
			if o[0] == tcpOptionMSS && len(o) == 4 && !yield(o[2:4]) {
				return
			}
		}
	}
}

// tcpOptions returns a segment's options that have a length, each with its offset. The segment has
// a whole header; invalid options end the sequence.
func tcpOptions(tcp []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		end := min(int(tcp[tcpDataOffset]>>4)*4, len(tcp)) // smaller than the header's length in bad segments
		for at := tcpHeaderLen; at < end; {
			switch tcp[at] {
			case tcpOptionEnd:
				return
			case tcpOptionNOP:
				at++
				continue
			}
			if at+1 >= end || tcp[at+1] < 2 || at+int(tcp[at+1]) > end {
				return
			}
			o := tcp[at : at+int(tcp[at+1])]
			if !yield(at, o) {
				return
			}
			at += len(o)
		}
	}
}

// tcpOf finds a packet's TCP segment behind IP options and extension headers. In a fragmented
// packet it finds the first piece only. The packet has a whole IP header.
func tcpOf(packet []byte) (tcp []byte, fragmented bool) {
	if packet[0]>>4 == 6 {
		tcp, fragmented, _ = ipv6Payload(packet, protoTCP)
		return tcp, fragmented
	}
	const offset, more = 0x1fff, 0x2000
	fragment := binary.BigEndian.Uint16(packet[ipv4Fragment:])
	if packet[ipv4Proto] != protoTCP || fragment&offset != 0 {
		return nil, false
	}
	return after(packet, int(packet[0]&0x0f)*4), fragment&more != 0
}
