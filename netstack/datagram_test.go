package netstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/postern-dev/postern/testenv/patience"
)

// received is a call of OnUDP.
type received struct {
	remote, local netip.AddrPort
	payload       []byte
}

// takeUDP is an OnUDP that accepts everything.
func takeUDP(to chan<- received) func(remote, local netip.AddrPort, payload []byte) bool {
	return func(remote, local netip.AddrPort, payload []byte) bool {
		to <- received{remote, local, bytes.Clone(payload)}
		return true
	}
}

// await receives from a channel.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience.Left()):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

func TestDatagramsArriveWholeWhateverTheirSize(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		overhead, most := ipv4HeaderLen+udpHeaderLen, maxIP-ipv4HeaderLen-udpHeaderLen
		if a.Is6() {
			overhead, most = ipv6HeaderLen+udpHeaderLen, maxIP-udpHeaderLen
		}
		for _, mtu := range []int{0, 1281, MinPathMTU} {
			t.Run(fmt.Sprint(mtu), func(t *testing.T) {
				fits := mtu
				if mtu == 0 {
					fits = DefaultMTU
				}
				got := make(chan received, 1)
				var packets, largest atomic.Int64
				p := newPair(t, Options{}, Options{OnUDP: takeUDP(got)}, impairment{there: func(packet []byte) bool {
					packets.Add(1)
					largest.Store(max(largest.Load(), int64(len(packet))))
					return true
				}})
				p.a.SetPathMTU(b, mtu)
				from, to := netip.AddrPortFrom(a, 4000), netip.AddrPortFrom(b, 53)
				for _, size := range []int{0, 1, fits - overhead, fits - overhead + 1, 4 * fits, most} {
					payload := make([]byte, size)
					for i := range payload {
						payload[i] = byte(rand.Uint32())
					}
					packets.Store(0)
					if err := p.a.SendUDP(from, to, payload); err != nil {
						t.Fatalf("%d bytes: %v", size, err)
					}
					if d := await(t, fmt.Sprintf("a datagram of %d bytes", size), got); d.remote != from || d.local != to || !bytes.Equal(d.payload, payload) {
						t.Errorf("%d bytes arrive as %d from %v at %v", size, len(d.payload), d.remote, d.local)
					}
					if n := packets.Load(); size <= fits-overhead && n != 1 {
						t.Errorf("%d bytes went in %d packets on a path of %d", size, n, fits)
					}
				}
				if n := largest.Load(); n > int64(fits) {
					t.Errorf("a packet of %d bytes was sent on a path of %d", n, fits)
				}
				if err := p.a.SendUDP(from, to, make([]byte, most+1)); !errors.Is(err, syscall.EMSGSIZE) {
					t.Errorf("one byte more than IP carries: %v", err)
				}
			})
		}
	})
}

// A stack that receives does not look at checksums, but stock peers pass packets on.
func TestDatagramsHaveChecksums(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		wire := make(chan []byte, 1)
		p := newPair(t, Options{}, Options{}, impairment{there: func(packet []byte) bool {
			wire <- bytes.Clone(packet)
			return false
		}})
		for range 200 { // some of them have a sum of 0
			from, to := netip.AddrPortFrom(a, uint16(1+rand.IntN(65535))), netip.AddrPortFrom(b, 53)
			if err := p.a.SendUDP(from, to, []byte{byte(rand.Uint32()), byte(rand.Uint32()), 7}); err != nil {
				t.Fatal(err)
			}
			packet := await(t, "the packet", wire)
			ipLen := ipv6HeaderLen
			if a.Is4() {
				ipLen = ipv4HeaderLen
				if checksum.Checksum(packet[:ipLen], 0) != 0xffff {
					t.Fatalf("the IP header's checksum is wrong: %x", packet)
				}
			}
			udp := packet[ipLen:]
			sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, toAddress(a), toAddress(b), uint16(len(udp)))
			if checksum.Checksum(udp, sum) != 0xffff || udp[udpChecksum] == 0 && udp[udpChecksum+1] == 0 {
				t.Fatalf("the checksum is wrong: %x", packet)
			}
		}
	})
}

func TestRefusedDatagramsAreToldOf(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		type ends struct{ remote, local netip.AddrPort }
		refused := make(chan ends, 1)
		var takes atomic.Bool
		p := newPair(t, Options{OnUDPRefused: func(remote, local netip.AddrPort) { refused <- ends{remote, local} }},
			Options{OnUDP: func(netip.AddrPort, netip.AddrPort, []byte) bool { return takes.Load() }}, impairment{})
		from, to := netip.AddrPortFrom(a, 4000), netip.AddrPortFrom(b, 53)
		for _, size := range []int{10, 5000} { // of which the quoted packet is a fragment
			if err := p.a.SendUDP(from, to, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if got := await(t, "the refusal of a datagram that nobody takes", refused); got != (ends{to, from}) {
				t.Errorf("%d bytes: told of %v", size, got)
			}
		}
		takes.Store(true) // and refuse it later
		p.b.RefuseUDP(to, from)
		if got := await(t, "a refusal afterwards", refused); got != (ends{to, from}) {
			t.Errorf("told of %v", got)
		}
		// A socket gets the error too.
		c, err := p.a.DialContext(context.Background(), "udp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience.Left()))
		local := c.LocalAddr().String()
		p.b.RefuseUDP(to, netip.MustParseAddrPort(local))
		if got := await(t, "a socket's refusal", refused); got.local.String() != local {
			t.Errorf("told of %v, want %s", got, local)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a socket that was refused reads %v", err)
		}
	})
}

func TestDatagramsGoFromOwnAddressesOnly(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	to := netip.AddrPortFrom(b6, 53)
	for _, from := range []netip.Addr{b6, a4, netip.IPv6Unspecified()} {
		if err := p.a.SendUDP(netip.AddrPortFrom(from, 1), to, nil); !errors.Is(err, ErrNoAddress) {
			t.Errorf("from %v: %v", from, err)
		}
	}
}

// A flow that is sent datagrams without end gets its part of the queue, its peer gets half of it, and
// all peers get half of a batch.
func TestAFloodOfDatagramsKeepsNobodyElseWaiting(t *testing.T) {
	q := newQueue()
	var peer uint8
	q.owner = func(*stack.PacketBuffer) uint8 { return peer }
	put := func(flow uint8) verdict {
		peer = flow / 128
		return q.putDatagram([]*stack.PacketBuffer{packet(1400, flow)}, flow)
	}
	n := 0
	for put(1) == queued {
		n++
	}
	if n != flowDatagrams {
		t.Errorf("a flow has %d packets in the queue, want %d", n, flowDatagrams)
	}
	if v := put(2); v != queued {
		t.Errorf("another flow's datagram: %v", v)
	}
	for flow := range 128 {
		for put(uint8(flow)) == queued {
		}
	}
	const most = (queueDatagrams + flowDatagrams) / 2 // The first ones do not count.
	if q.datagrams.count != most {
		t.Errorf("%d packets of a peer in the queue, want %d", q.datagrams.count, most)
	}
	if v := put(128); v != queued {
		t.Errorf("another peer's datagram: %v", v)
	}
	ack := packet(40, 0)
	defer ack.DecRef()
	for range 100 {
		if v := q.put(ack, 40, false); v != queued {
			t.Fatalf("an acknowledgement beside a flood: %v", v)
		}
	}
	taken, _ := q.take(nil, 64, -1)
	acks := 0
	for i, p := range taken {
		if p.Size() == 40 {
			acks++
			if i != acks-1 {
				t.Errorf("an acknowledgement waits behind datagrams")
			}
		}
		p.DecRef()
	}
	if len(taken) != 64 || acks != 32 {
		t.Errorf("a batch of %d has %d acknowledgements, want half", len(taken), acks)
	}
	q.close()
	for {
		rest, open := q.take(nil, 64, -1)
		if !open {
			break
		}
		for _, p := range rest {
			p.DecRef()
		}
	}
	if q.ofFlow != [256]uint8{} {
		t.Errorf("flows are left: %v", q.ofFlow)
	}
}

// Parsing an error never panics, and returns only addresses that it quotes.
func FuzzRefusedDatagram(f *testing.F) {
	quoted := appendUDP(nil, netip.AddrPortFrom(a6, 4000), netip.AddrPortFrom(b6, 53), []byte("x"))
	icmp := append([]byte{icmpv6Unreachable, portUnreachableV6, 0, 0, 0, 0, 0, 0}, append(ipHeader(a6, b6, protoUDP, len(quoted)), quoted...)...)
	f.Add(append(ipHeader(b6, a6, protocolICMPv6, len(icmp)), icmp...))
	quoted = appendUDP(nil, netip.AddrPortFrom(a4, 4000), netip.AddrPortFrom(b4, 53), []byte("x"))
	icmp = append([]byte{icmpv4Unreachable, portUnreachableV4, 0, 0, 0, 0, 0, 0}, append(ipHeader(a4, b4, protoUDP, len(quoted)), quoted...)...)
	f.Add(append(ipHeader(b4, a4, protocolICMPv4, len(icmp)), icmp...))
	f.Fuzz(func(t *testing.T, packet []byte) {
		var src netip.Addr
		switch {
		case len(packet) >= ipv6HeaderLen && packet[0]>>4 == 6:
			src = netip.AddrFrom16([16]byte(packet[ipv6Src : ipv6Src+16]))
		case len(packet) >= ipv4HeaderLen && packet[0]>>4 == 4:
			src = netip.AddrFrom4([4]byte(packet[ipv4Src : ipv4Src+4]))
		default:
			return
		}
		if forgedError(packet, src) {
			return
		}
		remote, local, ok := refusedDatagram(packet, src)
		if ok && (remote.Addr() != src || !local.Addr().IsValid() || len(packet) < 2*ipv4HeaderLen+icmpHeaderLen+udpLength) {
			t.Errorf("%x names %v and %v", packet, remote, local)
		}
	})
}

// Alone it measures the cost of a datagram on its way into the tunnel, without WireGuard.
func BenchmarkSendUDP(b *testing.B) {
	got := make(chan struct{}, 1)
	p := newPair(b, Options{}, Options{OnUDP: func(_, _ netip.AddrPort, payload []byte) bool {
		got <- struct{}{}
		return true
	}}, impairment{})
	payload := make([]byte, 1200)
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if err := p.a.SendUDP(netip.AddrPortFrom(a6, 4000), netip.AddrPortFrom(b6, 53), payload); err != nil {
			b.Fatal(err)
		}
		<-got
	}
}

// A peer with many addresses, each with flows of its own, leaves room in the queue for another one.
func TestDatagramsToManyAddressesOfAPeerLeaveRoom(t *testing.T) {
	s := stackOfSites(t)
	from, many := netip.AddrPortFrom(a6, 53), netip.MustParseAddr("fd01::")
	var err error
	for range 4 * queueDatagrams {
		many = many.Next()
		err = s.SendUDP(from, netip.AddrPortFrom(many, 1), make([]byte, 100))
	}
	if !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("after a flood: %v", err)
	}
	if err := s.SendUDP(from, netip.AddrPortFrom(otherSite(s, many), 1), make([]byte, 100)); err != nil {
		t.Errorf("a datagram to another peer: %v", err)
	}
}
