package netstack

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// gsoMaxSize is the maximum segment size, in bytes: the maximum IPv4 total length.
const gsoMaxSize = 65535

const (
	// trainPackets and trainBytes are what the underlay sends in one system call: UDP_SEGMENT takes
	// 64 datagrams, and the kernel cuts more than trainBytes of UDP payload before it sends it (see
	// package underlay).
	trainPackets = 64
	trainBytes   = 65469
	// tunnelOverhead is what WireGuard adds to a packet: header 16, tag 16 (whitepaper §5.4.6).
	tunnelOverhead = 32
	// timestampOption is the padded option of RFC 7323 §3.2, which every segment carries.
	timestampOption = 12
	// sackRoom is what gVisor leaves free in each segment for SACK blocks, which few data segments
	// have, so that its full packets have 1392 of 1420 bytes. The cutter cannot use that room: it
	// does not know what the peer's MSS allows, and for a peer without SACK no room is left.
	sackRoom = 28
	// gsoReserve is what gVisor subtracts from GSOMaxSize: header.TCPTotalHeaderMaximumSize + 1.
	gsoReserve = 160 + 1
)

// trainPayload is the TCP payload of a segment that leaves in a single system call, to peers with
// SACK and without, at the network card's MTU. A segment of 64 KB would leave in two, the second
// nearly empty, and arrive in two as well. At an MTU of 1420 it is 60660 bytes: 45 packets without
// gVisor's room for SACK blocks, and 45 and a smaller one with it.
func trainPayload(mtu int) int {
	const headers = ipv6HeaderLen + tcpHeaderLen + timestampOption
	fit := func(size int) int { return max(1, min(trainPackets, trainBytes/datagramSize(size, mtu))) }
	whole := fit(mtu) * (mtu - headers)
	n, last := fit(mtu-sackRoom), 0
	if n < trainPackets {
		last = max(0, (trainBytes-n*datagramSize(mtu-sackRoom, mtu)-tunnelOverhead)&^15-headers)
	}
	return min(whole, n*(mtu-sackRoom-headers)+last)
}

// datagramSize returns the UDP payload of a packet with size bytes. WireGuard pads packets to a
// multiple of 16 bytes, but not beyond the network card's MTU (whitepaper §5.4.6).
func datagramSize(size, mtu int) int {
	return min((size+15)&^15, max(size, mtu)) + tunnelOverhead
}

// link is the network card as gVisor sees it: what it writes goes into the outbound
// queue, what the device receives goes to the dispatcher.
type link struct {
	mtu        uint32 // immutable
	out        *queue
	drops      *drops
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
}

var (
	_ stack.LinkEndpoint = (*link)(nil)
	_ stack.GSOEndpoint  = (*link)(nil)
)

// WritePackets queues packets for the device. gVisor calls it from many goroutines, with the
// sending endpoint locked. A packet that finds no room is dropped and counted; the error makes
// gVisor's counters agree, and TCP treats it as a loss.
func (l *link) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, pkt := range list.AsSlice() {
		// Only TCP payload is bulky enough to fill the queue, and only its senders may wait: see
		// queue.
		wait := pkt.GSOOptions.Type != stack.GSONone && pkt.Data().Size() > 0
		switch l.out.put(pkt, pkt.Size(), wait) {
		case queued:
			n++
		case queueFull:
			l.drops.add(DropQueueFull)
			return n, &tcpip.ErrNoBufferSpace{}
		case queueClosed:
			l.drops.add(DropClosed)
			return n, &tcpip.ErrClosedForSend{}
		}
	}
	return n, nil
}

// deliver passes an inbound packet to gVisor and releases it.
func (l *link) deliver(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	if d := l.dispatcher.Load(); d != nil {
		(*d).DeliverNetworkPacket(proto, pkt)
	} else {
		l.drops.add(DropClosed)
	}
	pkt.DecRef()
}

// Attach implements stack.LinkEndpoint; a nil dispatcher detaches.
func (l *link) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		l.dispatcher.Store(nil)
		return
	}
	l.dispatcher.Store(&d)
}

// IsAttached implements stack.LinkEndpoint.
func (l *link) IsAttached() bool { return l.dispatcher.Load() != nil }

// MTU implements stack.LinkEndpoint.
func (l *link) MTU() uint32 { return l.mtu }

// SetMTU implements stack.LinkEndpoint; the MTU is fixed.
func (*link) SetMTU(uint32) {}

// Capabilities implements stack.LinkEndpoint. Received packets need no checksum
// verification: see the package comment.
func (*link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// SupportedGSO implements stack.GSOEndpoint: the device cuts segments.
func (*link) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// GSOMaxSize implements stack.GSOEndpoint.
func (l *link) GSOMaxSize() uint32 {
	return uint32(min(trainPayload(int(l.mtu))+gsoReserve, gsoMaxSize))
}

// MaxHeaderLength implements stack.LinkEndpoint; there is no link header.
func (*link) MaxHeaderLength() uint16 { return 0 }

// LinkAddress implements stack.LinkEndpoint; there is none.
func (*link) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress implements stack.LinkEndpoint.
func (*link) SetLinkAddress(tcpip.LinkAddress) {}

// ARPHardwareType implements stack.LinkEndpoint.
func (*link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader implements stack.LinkEndpoint.
func (*link) AddHeader(*stack.PacketBuffer) {}

// ParseHeader implements stack.LinkEndpoint.
func (*link) ParseHeader(*stack.PacketBuffer) bool { return true }

// Wait implements stack.LinkEndpoint; there are no goroutines.
func (*link) Wait() {}

// Close implements stack.LinkEndpoint; [Stack.Close] closes the queue.
func (*link) Close() {}

// SetOnCloseAction implements stack.LinkEndpoint.
func (*link) SetOnCloseAction(func()) {}
