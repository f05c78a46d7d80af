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

// MinPathMTU is the least overlay MTU that a path may have, in bytes: what every host must
// take whole (RFC 791 §3.2). IPv6 asks for 1280 of a link (RFC 8200 §5), which the network
// card keeps; the cutter may still cut TCP smaller.
const MinPathMTU = 576

// SetPathMTU says what the overlay MTU towards a peer's overlay address is, in bytes with
// the inner IP header. TCP to that address is cut to it from now on, open connections'
// segments included, and the maximum segment size in SYNs to and from it is clamped. Other
// packets are passed as they are: larger ones go in outer fragments. One that is not below
// Options.MTU counts as that, one below [MinPathMTU] as that. An mtu of 0 forgets the address:
// then it is Options.Unmeasured's, or Options.MTU.
//
// What a peer sends on connections that are already open, only the peer can cut: both
// gateways of a path need to be told.
func (s *Stack) SetPathMTU(peer netip.Addr, mtu int) {
	if mtu > 0 {
		mtu = min(max(mtu, MinPathMTU), s.opts.MTU)
	}
	s.dev.paths.set(peer, mtu)
	s.dev.flows.setMTU(peer, s.dev.paths.of(peer))
}

// Unmeasured are paths that [Stack.SetPathMTU] has yet to tell of.
type Unmeasured struct {
	// Peers are the overlay addresses that they lead to; the zero prefix is none.
	Peers netip.Prefix
	// MTU is what they are taken for, in bytes.
	MTU int
}

// pathMTUs holds the MTU of paths. Readers take a snapshot, since they look for each packet.
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
		mtu = 0 // as without a word of it
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

// of is the MTU towards an address, or 0 if it is the network card's.
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

// towards is the MTU of the path that an outbound packet takes, or 0.
func (p *pathMTUs) towards(pkt *stack.PacketBuffer) int {
	if p.snapshot.Load() == nil && !p.unmeasured.Peers.IsValid() {
		return 0
	}
	ip := pkt.NetworkHeader().Slice()
	switch {
	case len(ip) >= ipv6HeaderLen && ip[0]>>4 == 6:
		return p.of(netip.AddrFrom16([16]byte(ip[ipv6Dst : ipv6Dst+16])))
	case len(ip) >= ipv4HeaderLen && ip[0]>>4 == 4:
		return p.of(netip.AddrFrom4([4]byte(ip[ipv4Dst : ipv4Dst+4])))
	default:
		return 0
	}
}

// clampMSS lowers the maximum segment size that a SYN announces to what fits an MTU
// (RFC 9293 §3.7.1: the MTU less 40 bytes, or 60 over IPv6), and sets the checksum again.
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
