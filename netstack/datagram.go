package netstack

import (
	"encoding/binary"
	"hash/maphash"
	"net"
	"net/netip"
	"syscall"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Datagrams are handled without sockets. A gateway has a hundred thousand flows of them, and a
// gVisor endpoint costs kilobytes. So a datagram to a port without a socket goes to Options.OnUDP
// on the goroutine that received it, and SendUDP writes packets itself. gVisor reassembles
// fragments.

// Offsets and sizes: RFC 768, RFC 8200 §4.5, RFC 4443 §3.1.
const (
	protoUDP          = 17
	udpHeaderLen      = 8
	udpLength         = 4
	udpChecksum       = 6
	fragmentHeaderLen = 8
	moreFragments     = 1      // in IPv6's fragment header
	moreFragmentsV4   = 0x2000 // in IPv4's
	hopLimit          = 64
	icmpv6Unreachable = 1
	portUnreachableV6 = 4
	portUnreachableV4 = 3
	// maxIP is the largest IPv4 packet, and the largest payload of an IPv6 packet.
	maxIP = 65535
)

// onDatagram is gVisor's callback for UDP to a port without a socket.
func (s *Stack) onDatagram(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	h := header.UDP(pkt.TransportHeader().Slice())
	size := int(h.Length()) - udpHeaderLen
	if size < 0 || size > pkt.Data().Size() {
		return false // gVisor counts it as malformed
	}
	var payload []byte
	if size > 0 {
		payload, _ = pkt.Data().PullUp(size) // cannot fail: size was checked
	}
	return s.opts.OnUDP(
		fromFull(tcpip.FullAddress{Addr: id.RemoteAddress, Port: id.RemotePort}),
		fromFull(tcpip.FullAddress{Addr: id.LocalAddress, Port: id.LocalPort}), payload)
}

// SendUDP sends a datagram from an own address, which needs no socket. It never blocks: ENOBUFS
// means that WireGuard does not take packets fast enough. A datagram larger than the path's MTU is
// sent in fragments, inside the tunnel; one too large for IP fails with EMSGSIZE.
func (s *Stack) SendUDP(from, to netip.AddrPort, payload []byte) error {
	v6 := to.Addr().Is6()
	if _, own := s.dev.addrs[from.Addr()]; !own || from.Addr().Is6() != v6 {
		return dialFailed("udp", to, ErrNoAddress)
	}
	most := maxIP - udpHeaderLen
	if !v6 {
		most -= ipv4HeaderLen
	}
	if len(payload) > most {
		return dialFailed("udp", to, syscall.EMSGSIZE)
	}
	mtu := s.dev.paths.of(to.Addr())
	if mtu == 0 {
		mtu = s.opts.MTU
	}
	udp := appendUDP(make([]byte, 0, udpHeaderLen+len(payload)), from, to, payload)
	flow := uint8(maphash.Comparable(s.seed, udpFlow{from, to}))
	switch s.out.putDatagram(s.packetsOfUDP(from.Addr(), to.Addr(), udp, mtu), flow) {
	case queueFull:
		s.drops.add(DropQueueFull)
		return dialFailed("udp", to, syscall.ENOBUFS)
	case queueClosed:
		s.drops.add(DropClosed)
		return dialFailed("udp", to, net.ErrClosed)
	}
	return nil
}

// udpFlow identifies a flow of datagrams.
type udpFlow struct{ from, to netip.AddrPort }

// RefuseUDP tells remote, by ICMP, that nothing accepts what it sent to an own address.
func (s *Stack) RefuseUDP(local, remote netip.AddrPort) {
	from, to := local.Addr(), remote.Addr()
	if _, own := s.dev.addrs[from]; !own || from.Is6() != to.Is6() {
		return
	}
	// The quote has no payload: the ports identify the datagram.
	quoted := appendUDP(nil, remote, local, nil)
	if from.Is6() {
		icmp := append([]byte{icmpv6Unreachable, portUnreachableV6, 0, 0, 0, 0, 0, 0}, ipHeader(to, from, protoUDP, len(quoted))...)
		icmp = append(icmp, quoted...)
		sum := header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: toAddress(from), Dst: toAddress(to)})
		binary.BigEndian.PutUint16(icmp[2:], sum)
		s.putICMP(append(ipHeader(from, to, protocolICMPv6, len(icmp)), icmp...), ipv6HeaderLen)
		return
	}
	icmp := append([]byte{icmpv4Unreachable, portUnreachableV4, 0, 0, 0, 0, 0, 0}, ipHeader(to, from, protoUDP, len(quoted))...)
	icmp = append(icmp, quoted...)
	binary.BigEndian.PutUint16(icmp[2:], ^checksum.Checksum(icmp, 0))
	s.putICMP(append(ipHeader(from, to, protocolICMPv4, len(icmp)), icmp...), ipv4HeaderLen)
}

func (s *Stack) putICMP(packet []byte, ipLen int) {
	pkt := packetWith(packet, ipLen)
	defer pkt.DecRef()
	if s.out.put(pkt, pkt.Size(), false) == queueFull {
		s.drops.add(DropQueueFull)
	}
}

// appendUDP appends a datagram with its checksum.
func appendUDP(b []byte, from, to netip.AddrPort, payload []byte) []byte {
	start, size := len(b), udpHeaderLen+len(payload)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	b = append(append(b, 0, 0), payload...)
	udp := b[start:]
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, toAddress(from.Addr()), toAddress(to.Addr()), uint16(size))
	sum = ^checksum.Checksum(udp, sum)
	if sum == 0 {
		sum = 0xffff // 0 means none (RFC 768)
	}
	binary.BigEndian.PutUint16(udp[udpChecksum:], sum)
	return b
}

// ipHeader returns the header for a payload of a protocol and size.
func ipHeader(from, to netip.Addr, protocol byte, size int) []byte {
	if from.Is6() {
		h := make([]byte, ipv6HeaderLen, ipv6HeaderLen+size)
		h[0], h[ipv6NextHeader], h[ipv6NextHeader+1] = 0x60, protocol, hopLimit
		binary.BigEndian.PutUint16(h[ipv6PayloadLen:], uint16(size))
		copy(h[ipv6Src:], from.AsSlice())
		copy(h[ipv6Dst:], to.AsSlice())
		return h
	}
	h := make([]byte, ipv4HeaderLen, ipv4HeaderLen+size)
	h[0], h[ipv4TTL], h[ipv4Proto] = 0x45, hopLimit, protocol
	binary.BigEndian.PutUint16(h[ipv4TotalLen:], uint16(ipv4HeaderLen+size))
	copy(h[ipv4Src:], from.AsSlice())
	copy(h[ipv4Dst:], to.AsSlice())
	binary.BigEndian.PutUint16(h[ipv4Checksum:], ^checksum.Checksum(h, 0))
	return h
}

// packetsOfUDP returns the packets of a datagram on a path with an MTU.
func (s *Stack) packetsOfUDP(from, to netip.Addr, udp []byte, mtu int) []*stack.PacketBuffer {
	ipLen, extra := ipv4HeaderLen, 0
	if from.Is6() {
		ipLen, extra = ipv6HeaderLen, fragmentHeaderLen
	}
	if ipLen+len(udp) <= mtu {
		return []*stack.PacketBuffer{packetWith(append(ipHeader(from, to, protoUDP, len(udp)), udp...), ipLen)}
	}
	piece := (mtu - ipLen - extra) &^ 7 // RFC 8200 §4.5, RFC 791 §3.2: all but the last
	id := s.fragmentID.Add(1)
	out := make([]*stack.PacketBuffer, 0, (len(udp)+piece-1)/piece)
	for at := 0; at < len(udp); at += piece {
		b := udp[at:min(at+piece, len(udp))]
		more := at+len(b) < len(udp)
		var packet []byte
		if from.Is6() {
			flags := uint16(at) // the offset in units of 8 bytes, above three bits
			if more {
				flags |= moreFragments
			}
			packet = append(ipHeader(from, to, extensionFragment, extra+len(b)), protoUDP, 0)
			packet = binary.BigEndian.AppendUint16(packet, flags)
			packet = binary.BigEndian.AppendUint32(packet, id)
		} else {
			flags := uint16(at / 8)
			if more {
				flags |= moreFragmentsV4
			}
			packet = ipHeader(from, to, protoUDP, len(b))
			binary.BigEndian.PutUint16(packet[ipv4ID:], uint16(id))
			binary.BigEndian.PutUint16(packet[ipv4Fragment:], flags)
			packet[ipv4Checksum], packet[ipv4Checksum+1] = 0, 0
			binary.BigEndian.PutUint16(packet[ipv4Checksum:], ^checksum.Checksum(packet, 0))
		}
		out = append(out, packetWith(append(packet, b...), ipLen))
	}
	return out
}

// packetWith returns a packet in gVisor's form.
func packetWith(packet []byte, ipLen int) *stack.PacketBuffer {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(buffer.NewViewWithData(packet))})
	pkt.NetworkHeader().Consume(ipLen)
	return pkt
}

// refusedDatagram returns the remote and own address of the datagram that an ICMP error quotes as
// not accepted. ok is false for other packets and for forged errors.
func refusedDatagram(packet []byte, src netip.Addr) (remote, local netip.AddrPort, ok bool) {
	var quoted, udp []byte
	var from netip.Addr
	if src.Is4() {
		if packet[ipv4Proto] != protocolICMPv4 || binary.BigEndian.Uint16(packet[ipv4Fragment:])&0x1fff != 0 {
			return remote, local, false
		}
		icmp := after(packet, int(packet[0]&0x0f)*4)
		if len(icmp) < icmpHeaderLen || icmp[0] != icmpv4Unreachable || icmp[1] == icmpv4FragNeeded {
			return remote, local, false
		}
		if quoted = after(icmp, icmpHeaderLen); len(quoted) < ipv4HeaderLen || quoted[ipv4Proto] != protoUDP || binary.BigEndian.Uint16(quoted[ipv4Fragment:])&0x1fff != 0 {
			return remote, local, false
		}
		from, udp = netip.AddrFrom4([4]byte(quoted[ipv4Src:ipv4Src+4])), after(quoted, int(quoted[0]&0x0f)*4)
	} else {
		icmp, is := icmpv6Of(packet)
		if !is || len(icmp) < icmpHeaderLen || icmp[0] != icmpv6Unreachable {
			return remote, local, false
		}
		if quoted = after(icmp, icmpHeaderLen); len(quoted) < ipv6HeaderLen {
			return remote, local, false
		}
		from = netip.AddrFrom16([16]byte(quoted[ipv6Src : ipv6Src+16]))
		if udp, _, is = ipv6Payload(quoted, protoUDP); !is {
			return remote, local, false
		}
	}
	if len(udp) < udpLength {
		return remote, local, false
	}
	// Not forged: the error comes from the quoted destination.
	return netip.AddrPortFrom(src, binary.BigEndian.Uint16(udp[2:])), netip.AddrPortFrom(from, binary.BigEndian.Uint16(udp)), true
}
