package netstack

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// MinPathMTU is the minimum overlay MTU of a path, in bytes: what every IPv4 host must accept
// unfragmented (RFC 791 §3.2). IPv6 requires 1280 of a link (RFC 8200 §5), which the network card
// has; the cutter may still cut TCP smaller.
const MinPathMTU = 576

// SetPathMTU sets the overlay MTU towards a peer's overlay address, in bytes including the inner IP
// header. From now on TCP to that address is cut to it, including segments of open connections, and
// the maximum segment size in SYNs to and from it is clamped. Other packets pass unchanged: larger
// ones go in outer fragments. The MTU is clamped to [MinPathMTU] and Options.MTU. 0 forgets the
// address: it then has the MTU of Options.Unmeasured, or Options.MTU.
//
// Only the peer can cut what it sends on open connections, so both gateways of a path need the
// call.
func (s *Stack) SetPathMTU(peer netip.Addr, mtu int) {
	if mtu > 0 {
		mtu = min(max(mtu, MinPathMTU), s.opts.MTU)
	}
	s.dev.paths.set(peer, mtu)
	s.dev.flows.mtuChanged(peer)
}

// Unmeasured are paths that [Stack.SetPathMTU] has not been called for yet.
type Unmeasured struct {
	// Peers are their overlay addresses; the zero prefix means none.
	Peers netip.Prefix
	// MTU is what they are assumed to have, in bytes.
	MTU int
}

// pathMTUs holds the MTUs of paths. Readers use a snapshot, since they look for each packet.
type pathMTUs struct {
	card       int        // the network card's; immutable
	unmeasured Unmeasured // immutable

	mu       sync.Mutex // held by writers
	snapshot atomic.Pointer[map[netip.Addr]int]
}

// set changes an address's MTU; 0 forgets it.
func (p *pathMTUs) set(peer netip.Addr, mtu int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if mtu == p.card && !p.unmeasured.Peers.Contains(peer) {
		mtu = 0 // same as unset
	}
	old := p.snapshot.Load()
	if old == nil && mtu == 0 || old != nil && (*old)[peer] == mtu {
		return
	}
	next := make(map[netip.Addr]int)
	if old != nil {
		maps.Copy(next, *old)
	}
	if mtu > 0 {
		next[peer] = mtu
	} else {
		delete(next, peer)
	}
	if len(next) == 0 {
		p.snapshot.Store(nil)
		return
	}
	p.snapshot.Store(&next)
}

// of returns the MTU towards an address, or 0 if it is the network card's.
func (p *pathMTUs) of(peer netip.Addr) int {
	if m := p.snapshot.Load(); m != nil {
		if mtu, known := (*m)[peer]; known {
			return mtu
		}
	}
	if p.unmeasured.Peers.Contains(peer) {
		return p.unmeasured.MTU
	}
	return 0
}

// towards returns the MTU of an outbound packet's path, or 0.
func (p *pathMTUs) towards(pkt *stack.PacketBuffer) int {
	if p.snapshot.Load() == nil && !p.unmeasured.Peers.IsValid() {
		return 0
	}
	return p.of(destination(pkt))
}

// destination returns where an outbound packet goes; invalid if it has no header.
func destination(pkt *stack.PacketBuffer) netip.Addr {
	ip := pkt.NetworkHeader().Slice()
	switch {
	case len(ip) >= ipv6HeaderLen && ip[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(ip[ipv6Dst : ipv6Dst+16]))
	case len(ip) >= ipv4HeaderLen && ip[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(ip[ipv4Dst : ipv4Dst+4]))
	}
	return netip.Addr{}
}

// clampMSS lowers the maximum segment size in a SYN to what fits an MTU (RFC 9293 §3.7.1: the MTU
// less 40 bytes, or 60 over IPv6), and updates the checksum.
func clampMSS(packet []byte, mtu int) {
	tcp, fragmented := tcpOf(packet)
	if fragmented || len(tcp) < tcpHeaderLen || tcp[tcpFlags]&flagSYN == 0 {
		return
	}
	v4 := packet[0]>>4 == 4
	addresses, largest := packet[ipv6Src:ipv6HeaderLen], mtu-ipv6HeaderLen-tcpHeaderLen
	if v4 {
		addresses, largest = packet[ipv4Src:ipv4HeaderLen], mtu-ipv4HeaderLen-tcpHeaderLen
	}
	changed := false
	for value := range mssOptions(tcp) {
		if int(binary.BigEndian.Uint16(value)) > largest {
			value[0], value[1] = byte(largest>>8), byte(largest)
			changed = true
		}
	}
	if !changed {
		return
	}
	tcp[tcpChecksum], tcp[tcpChecksum+1] = 0, 0
	sum := checksum.Combine(checksum.Checksum(addresses, protoTCP), uint16(len(tcp)))
	sum = ^checksum.Checksum(tcp, sum)
	tcp[tcpChecksum], tcp[tcpChecksum+1] = byte(sum>>8), byte(sum)
}
