package netstack

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
)

func TestOnlyTheQuotedDestinationMayReportErrors(t *testing.T) {
	own, peer, third := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::a"), netip.MustParseAddr("fd00::c")
	own4, peer4, third4 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("10.0.0.12")
	v6 := func(src netip.Addr, kind byte, mtu uint32, to netip.Addr, extensions ...byte) []byte {
		icmp := append([]byte{kind, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, mtu)...)
		icmp = append(icmp, headerV6(6, own, to)...)
		next := byte(protocolICMPv6)
		if len(extensions) > 0 {
			next = extensions[0]
			h := make([]byte, 8)
			h[0] = protocolICMPv6
			icmp = append(h, icmp...)
		}
		return append(headerV6(next, src, own), icmp...)
	}
	v4 := func(src netip.Addr, kind, code byte, mtu uint16, to netip.Addr) []byte {
		icmp := append([]byte{kind, code, 0, 0, 0, 0}, binary.BigEndian.AppendUint16(nil, mtu)...)
		return append(headerV4(1, src, own4), append(icmp, headerV4(6, own4, to)...)...)
	}
	for _, c := range []struct {
		name   string
		packet []byte
		src    netip.Addr
		forged bool
	}{
		{"unreachable from where the packet went", v6(peer, 1, 0, peer), peer, false},
		{"unreachable from a third peer", v6(third, 1, 0, peer), third, true},
		{"the same behind destination options", v6(third, 1, 0, peer, extensionDestination), third, true},
		{"the same behind a fragment header", v6(third, 1, 0, peer, extensionFragment), third, true},
		{"too big at the minimum", v6(peer, 2, MinMTU, peer), peer, false},
		{"too big below the minimum", v6(peer, 2, MinMTU-1, peer), peer, true},
		{"too big with nothing quoted", v6(peer, 2, MinMTU, peer)[:ipv6HeaderLen+icmpHeaderLen], peer, true},
		{"a later fragment of anything", laterFragment(v6(third, 1, 0, peer, extensionFragment)), third, false},
		{"echo request", v6(third, 128, 0, peer), third, false},
		{"TCP", headerV6(6, third, own), third, false},
		{"IPv4 unreachable from where the packet went", v4(peer4, 3, 3, 0, peer4), peer4, false},
		{"IPv4 unreachable from a third peer", v4(third4, 3, 3, 0, peer4), third4, true},
		{"IPv4 fragmentation needed at the minimum", v4(peer4, 3, 4, minMTUv4, peer4), peer4, false},
		{"IPv4 fragmentation needed below it", v4(peer4, 3, 4, minMTUv4-1, peer4), peer4, true},
		{"IPv4 echo request", v4(third4, 8, 0, 0, peer4), third4, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := forgedError(c.packet, c.src); got != c.forged {
				t.Errorf("got %v, want %v", got, c.forged)
			}
			for n := range c.packet { // however it is cut, it must not panic
				if n >= ipv6HeaderLen || c.src.Is4() && n >= ipv4HeaderLen {
					forgedError(slices.Clone(c.packet[:n]), c.src)
				}
			}
		})
	}
}

func headerV6(next byte, src, dst netip.Addr) []byte {
	h := make([]byte, ipv6HeaderLen)
	h[0], h[ipv6NextHeader] = 0x60, next
	copy(h[ipv6Src:], src.AsSlice())
	copy(h[ipv6Dst:], dst.AsSlice())
	return h
}

func headerV4(protocol byte, src, dst netip.Addr) []byte {
	h := make([]byte, ipv4HeaderLen)
	h[0], h[ipv4Proto] = 0x45, protocol
	copy(h[ipv4Src:], src.AsSlice())
	copy(h[ipv4Dst:], dst.AsSlice())
	return h
}

// laterFragment gives a packet with a fragment header an offset.
func laterFragment(p []byte) []byte {
	binary.BigEndian.PutUint16(p[ipv6HeaderLen+2:], 8<<3)
	return p
}
