package netstack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// What is cut for a narrow path is what the oracle expects of an MSS that fits it, also
// when the packet came without offload options.
func TestSegmenterForAPathAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range oracleCases {
		spec := packetSpec{
			v4:      rng.IntN(2) == 0,
			options: make([]byte, 4*rng.IntN(11)),
			flags:   byte(rng.IntN(256)) &^ 0x06,
			mss:     uint16(500 + rng.IntN(1500)),
			id:      uint16(rng.Uint32()),
			seq:     rng.Uint32(),
			payload: make([]byte, rng.IntN(60000)),
		}
		offload := rng.IntN(4) > 0
		if !offload {
			spec.payload = spec.payload[:min(len(spec.payload), 1500)]
			spec.mss = 65535
		}
		fill(rng, spec.payload)
		for range rng.IntN(6) {
			spec.cuts = append(spec.cuts, rng.IntN(len(spec.payload)+80))
		}
		slices.Sort(spec.cuts)
		mtu := MinPathMTU + rng.IntN(1000)
		views, gso := spec.build()
		if !offload {
			gso = stack.GSO{}
		}
		segments, err := cutFor(views, gso, mtu, 2000)
		header := 20 + len(spec.options) + 40
		if spec.v4 {
			header -= 20
		}
		whole := !offload && header+len(spec.payload) <= mtu // Not touched: its checksum is none.
		if err == nil && !whole {
			expected := spec
			expected.mss = uint16(min(int(spec.mss), mtu-header))
			err = checkSegments(expected, segments)
		}
		for _, p := range segments {
			if len(p) > mtu {
				err = fmt.Errorf("a packet of %d bytes", len(p))
			}
		}
		if err != nil {
			t.Fatalf("case %d (v4 %v, %d bytes, MSS %d, MTU %d, offload %v): %v", i, spec.v4, len(spec.payload), spec.mss, mtu, offload, err)
		}
	}
}

// Only TCP is cut; the rest goes in outer fragments.
func TestOtherPacketsPassANarrowPathWhole(t *testing.T) {
	udp := append(ipv6Packet(a6, b6), make([]byte, 1300)...)
	udp[ipv6NextHeader] = 17
	fragment := append(ipv4Packet(a4, b4), make([]byte, 1300)...)
	fragment[ipv4Proto], fragment[ipv4Fragment] = protoTCP, 0x20
	for name, p := range map[string][]byte{"UDP": udp, "a fragment": fragment, "no IP": make([]byte, 1000)} {
		got, err := cutFor([][]byte{p[:10], p[10:]}, stack.GSO{}, 600, 2000)
		if err != nil || len(got) != 1 || !bytes.Equal(got[0], p) {
			t.Errorf("%s: %d packets, %v; want it as it is", name, len(got), err)
		}
	}
}

// synMSS makes a SYN from a to b with an MSS option between others.
func synMSS(a, b netip.Addr, mss uint16) []byte {
	tcp := make([]byte, 28)
	binary.BigEndian.PutUint16(tcp[0:], 4000)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	tcp[tcpDataOffset], tcp[tcpFlags], tcp[14] = 7<<4, flagSYN, 0xff
	copy(tcp[20:], []byte{1, 2, 4, byte(mss >> 8), byte(mss), 1, 4, 2})
	ip := ipv6Packet(a, b)
	if a.Is4() {
		ip = ipv4Packet(a, b)
		ip[ipv4Proto], ip[ipv4TotalLen+1] = protoTCP, byte(len(ip)+len(tcp))
		binary.BigEndian.PutUint16(ip[ipv4Checksum:], ^onesSum(ip))
	} else {
		ip[ipv6NextHeader], ip[ipv6PayloadLen+1] = protoTCP, byte(len(tcp))
	}
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], ^pseudoSum(ip, tcp))
	return append(ip, tcp...)
}

// pseudoSum is the sum over a segment and its pseudo header.
func pseudoSum(ip, tcp []byte) uint16 {
	addresses := ip[12:20]
	if ip[0]>>4 == 6 {
		addresses = ip[8:40]
	}
	return onesSum(slices.Concat(addresses, []byte{0, 6, byte(len(tcp) >> 8), byte(len(tcp))}), tcp)
}

func TestClampedSYNsKeepTheirChecksum(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		overhead := 60
		if a.Is4() {
			overhead = 40
		}
		for _, c := range []struct{ mss, mtu, want int }{{1360, 1020, 1020 - overhead}, {900, 1020, 900}, {1360, 576, 576 - overhead}} {
			p := synMSS(a, b, uint16(c.mss))
			before := bytes.Clone(p)
			clampMSS(p, c.mtu)
			tcp, _ := tcpOf(p)
			if got := int(binary.BigEndian.Uint16(tcp[23:])); got != c.want {
				t.Errorf("an MSS of %d for an MTU of %d becomes %d, want %d", c.mss, c.mtu, got, c.want)
			}
			if got := pseudoSum(p, tcp); got != 0xffff {
				t.Errorf("the sum over a clamped SYN is %#x", got)
			}
			l4 := len(p) - len(tcp)
			copy(before[l4+tcpChecksum:], tcp[tcpChecksum:tcpChecksum+2])
			copy(before[l4+23:], tcp[23:25])
			if !bytes.Equal(p, before) {
				t.Error("more than the MSS and the checksum was changed")
			}
		}
		data := synMSS(a, b, 1360)
		data[len(data)-28+tcpFlags] = 0x10
		before := bytes.Clone(data)
		if clampMSS(data, 600); !bytes.Equal(data, before) {
			t.Error("a packet that is no SYN was changed")
		}
	})
}

// Connections of a narrow path work through a pipe that drops what is larger, in both
// directions, each side told of it.
func TestTransferOverANarrowPath(t *testing.T) {
	for _, mtu := range []int{1280 - 80, 1100 - 80, MinPathMTU} {
		for _, at := range []netip.Addr{b6, b4} {
			t.Run(fmt.Sprintf("mtu=%d,v4=%v", mtu, at.Is4()), func(t *testing.T) {
				var largest atomic.Int64
				largest.Store(int64(mtu))
				p := newPair(t, Options{}, Options{}, impairment{largest: &largest})
				for _, addr := range []netip.Addr{b6, b4} {
					p.a.SetPathMTU(addr, mtu)
				}
				for _, addr := range []netip.Addr{a6, a4} {
					p.b.SetPathMTU(addr, mtu)
				}
				transferBothWays(t, p, at)
				if n := p.a.Stats().TCPRetransmits + p.b.Stats().TCPRetransmits; n > 100 {
					t.Errorf("%d segments were sent again: some did not fit the path", n)
				}
			})
		}
	}
}

// The side that is told clamps the SYNs of both, so that a peer that knows nothing sends
// small segments from the start.
func TestOneSideClampsForBoth(t *testing.T) {
	var largest atomic.Int64
	largest.Store(1020)
	p := newPair(t, Options{}, Options{}, impairment{largest: &largest})
	p.a.SetPathMTU(b6, 1020)
	transferBothWays(t, p, b6)
}

func transferBothWays(t *testing.T, p pair, at netip.Addr) {
	t.Helper()
	client, server := p.connect(t, at)
	var wg sync.WaitGroup
	wg.Go(func() { transfer(t, client, server, transferSize/64, 1) })
	wg.Go(func() { transfer(t, server, client, transferSize/64, 2) })
	wg.Wait()
}

// A path that becomes narrower in the middle of a transfer loses what was under way, and
// nothing else.
func TestPathNarrowsDuringATransfer(t *testing.T) {
	for _, mtu := range []int{1280 - 80, 1100 - 80} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			var largest atomic.Int64
			p := newPair(t, Options{}, Options{}, impairment{largest: &largest})
			client, server := p.connect(t, b6)
			narrow := sync.OnceFunc(func() {
				largest.Store(int64(mtu))
				p.a.SetPathMTU(b6, mtu)
				p.b.SetPathMTU(a6, mtu)
			})
			const size = transferSize / 32
			var wg sync.WaitGroup
			for i, ends := range [][2]*Conn{{client, server}, {server, client}} {
				from, to := ends[0], ends[1]
				_ = from.SetDeadline(time.Now().Add(10 * time.Minute))
				wg.Go(func() {
					if n, err := from.ReadFrom(io.LimitReader(random(byte(i)), size)); n != size || err != nil {
						t.Errorf("sent %d of %d bytes: %v", n, size, err)
					}
				})
				wg.Go(func() {
					c := &comparer{want: random(byte(i))}
					buf := make([]byte, 64<<10)
					for c.at < size {
						n, err := to.Read(buf)
						if err == nil {
							_, err = c.Write(buf[:n])
						}
						if err != nil {
							t.Errorf("after %d of %d bytes: %v", c.at, size, err)
							return
						}
						if c.at > size/4 {
							narrow()
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestPathMTUsAreSetAndForgotten(t *testing.T) {
	s, err := New(Options{Addresses: []netip.Addr{a6}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct{ set, want int }{{1200, 1200}, {100, MinPathMTU}, {1419, 1419}, {DefaultMTU, 0}, {600, 600}, {0, 0}} {
		s.SetPathMTU(b6, c.set)
		if got := s.dev.paths.of(b6); got != c.want {
			t.Errorf("after setting %d the path's MTU is %d, want %d", c.set, got, c.want)
		}
	}
	if s.dev.paths.snapshot.Load() != nil {
		t.Error("something is left of forgotten paths")
	}
}

// Paths that are not measured yet count as narrower than the network card, measured ones by their
// MTU.
func TestUnmeasuredPathsAreTakenForNarrow(t *testing.T) {
	s, err := New(Options{Addresses: []netip.Addr{a6}, MTU: 8920, Unmeasured: Unmeasured{netip.PrefixFrom(b6, 128), 1408}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other := b6.Next()
	for _, c := range []struct{ set, want int }{{0, 1408}, {8920, 8920}, {9000, 8920}, {4032, 4032}, {100, MinPathMTU}, {0, 1408}} {
		s.SetPathMTU(b6, c.set)
		s.SetPathMTU(other, c.set)
		if got := s.dev.paths.of(b6); got != c.want {
			t.Errorf("after setting %d the path's MTU is %d, want %d", c.set, got, c.want)
		}
		want := c.want
		if want == 1408 || want == 8920 {
			want = 0 // the card's, of whom nobody measures
		}
		if got := s.dev.paths.of(other); got != want {
			t.Errorf("after setting %d that of another path is %d, want %d", c.set, got, want)
		}
		syn := synMSS(b6, a6, 8860)
		s.dev.accepts(syn)
		if got, want := int(binary.BigEndian.Uint16(syn[len(syn)-5:])), c.want-60; got != want {
			t.Errorf("after setting %d a SYN asks for segments of %d bytes, want %d", c.set, got, want)
		}
	}
	if s.dev.paths.snapshot.Load() != nil {
		t.Error("something is left of forgotten paths")
	}
	if s, err := New(Options{Addresses: []netip.Addr{a6}, Unmeasured: Unmeasured{netip.PrefixFrom(b6, 128), DefaultMTU}}); err != nil {
		t.Error(err)
	} else if s.dev.paths.unmeasured.Peers.IsValid() {
		t.Error("packets are looked at though it makes no difference")
		s.Close()
	} else {
		s.Close()
	}
	for _, mtu := range []int{MinPathMTU - 1, DefaultMTU + 1} {
		if _, err := New(Options{Addresses: []netip.Addr{a6}, Unmeasured: Unmeasured{netip.PrefixFrom(b6, 128), mtu}}); err == nil {
			t.Errorf("unmeasured paths of %d bytes are allowed", mtu)
		}
	}
}

func TestSYNsWithTinySegmentsAreDropped(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		least := uint16(516)
		if a.Is4() {
			least = 536
		}
		s, err := New(Options{Addresses: []netip.Addr{b}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		answer := synMSS(a, b, least-1)
		answer[len(answer)-28+tcpFlags] |= 0x10
		twice := synMSS(a, b, 1300)
		twice[len(twice)-28+12] = 9 << 4
		twice = append(twice, 2, 4, 0, 88, 1, 1, 1, 1) // gVisor uses the last one.
		dropped := [][]byte{synMSS(a, b, least-1), synMSS(a, b, 0), synMSS(a, b, 48), answer, twice}
		inject(t, s, dropped...)
		if got := s.Stats().Dropped[DropSmallMSS]; got != uint64(len(dropped)) {
			t.Errorf("%d of %d SYNs were dropped", got, len(dropped))
		}
		inject(t, s, synMSS(a, b, least), synMSS(a, b, 1360))
		if got := s.Stats().Dropped[DropSmallMSS]; got != uint64(len(dropped)) {
			t.Errorf("%d SYNs with segments large enough were dropped", got-uint64(len(dropped)))
		}
	})
}

// gVisor puts fragments together, so a SYN must not come in any, nor the TCP header.
func TestSYNsCannotHideInFragments(t *testing.T) {
	fragment4 := func(p []byte, size int) []byte {
		p = bytes.Clone(p[:20+size])
		p[ipv4Fragment] = 0x20
		return p
	}
	fragment6 := func(p []byte, size int) []byte {
		head := bytes.Clone(p[:40])
		head[ipv6NextHeader] = extensionFragment
		return slices.Concat(head, []byte{protoTCP, 0, 0, 1, 0, 0, 0, 7}, p[40:40+size])
	}
	long := append(synMSS(a4, b4, 1360), make([]byte, 64)...)
	data := bytes.Clone(long)
	data[20+tcpFlags] = 0x10
	extended := synMSS(a6, b6, 100)
	extended = slices.Concat(extended[:40], []byte{protoTCP, 0, 1, 4, 0, 0, 0, 0}, extended[40:])
	extended[ipv6NextHeader] = extensionDestination
	for _, c := range []struct {
		name   string
		packet []byte
		want   bool
	}{
		{"a fragmented SYN over IPv4", fragment4(long, 64), true},
		{"a header in pieces over IPv4", fragment4(data, 8), true},
		{"a data segment's first fragment", fragment4(data, 64), false},
		{"a fragmented SYN over IPv6", fragment6(synMSS(a6, b6, 1360), 24), true},
		{"a header in pieces over IPv6", fragment6(synMSS(a6, b6, 1360), 8), true},
		{"a SYN behind an extension header", extended, true},
		{"no TCP", ipv6Packet(a6, b6), false},
	} {
		if got := smallMSS(c.packet); got != c.want {
			t.Errorf("%s: dropped is %v, want %v", c.name, got, c.want)
		}
	}
}

func FuzzSYN(f *testing.F) {
	f.Add(synMSS(a6, b6, 1360), 1020)
	f.Add(synMSS(a4, b4, 48), 576)
	f.Fuzz(func(t *testing.T, packet []byte, mtu int) {
		if len(packet) < 20 || packet[0]>>4 != 4 && (packet[0]>>4 != 6 || len(packet) < 40) || mtu < MinPathMTU || mtu > 65535 {
			return // The device has sorted these out.
		}
		small, size := smallMSS(packet), len(packet)
		clampMSS(packet, mtu)
		if len(packet) != size || !small && smallMSS(packet) {
			t.Error("clamping made an acceptable SYN unacceptable")
		}
	})
}
