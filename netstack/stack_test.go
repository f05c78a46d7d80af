package netstack

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func TestNewRefusesOptionsThatMakeNoSense(t *testing.T) {
	own := []netip.Addr{a6}
	for name, o := range map[string]Options{
		"no address":          {},
		"MTU below IPv6's":    {Addresses: own, MTU: 1279},
		"MTU too large":       {Addresses: own, MTU: 65536},
		"tiny buffer":         {Addresses: own, TCPSendBuffer: 1000},
		"negative buffer":     {Addresses: own, TCPReceiveBuffer: -1},
		"little memory":       {Addresses: own, TCPMemory: 1 << 20},
		"negative limit":      {Addresses: own, MaxPendingTCP: -1},
		"address given twice": {Addresses: []netip.Addr{a6, a4, a6}},
		"invalid address":     {Addresses: []netip.Addr{{}}},
		"mapped address":      {Addresses: []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1")}},
		"unspecified address": {Addresses: []netip.Addr{netip.IPv6Unspecified()}},
		"multicast address":   {Addresses: []netip.Addr{netip.MustParseAddr("ff02::1")}},
		"address with a zone": {Addresses: []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}},
	} {
		s, err := New(o)
		if err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		} else if !strings.HasPrefix(err.Error(), "netstack: ") {
			t.Errorf("%s: %v does not say where it comes from", name, err)
		}
	}
}

func TestDeviceDescribesItself(t *testing.T) {
	s, err := New(Options{Addresses: []netip.Addr{a6}, MTU: 1300})
	if err != nil {
		t.Fatal(err)
	}
	d := s.Device()
	if mtu, err := d.MTU(); mtu != 1300 || err != nil {
		t.Errorf("MTU is %d, %v; want 1300", mtu, err)
	}
	if name, err := d.Name(); name == "" || err != nil {
		t.Errorf("Name is %q, %v", name, err)
	}
	if d.File() != nil {
		t.Error("File is not nil")
	}
	if got := d.BatchSize(); got != 64 {
		t.Errorf("BatchSize is %d, want 64", got)
	}
	if e := <-d.Events(); e != tun.EventUp {
		t.Errorf("first event is %v, want up", e)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if e, open := <-d.Events(); open {
		t.Errorf("event %v after closing", e)
	}
	if !isClosed(s.Done()) {
		t.Error("closing the device did not close the stack")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseWakesTheReaderOfTheDevice(t *testing.T) {
	s, err := New(Options{Addresses: []netip.Addr{a6}})
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		_, err := s.Device().Read([][]byte{make([]byte, 2000)}, []int{0}, 0)
		result <- err
	}()
	s.Close()
	if err := <-result; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Read gives %v, want %v", err, os.ErrClosed)
	}
}

// Close during transfers in both directions ends every call, with net.ErrClosed on the
// closing side.
func TestCloseDuringTransfers(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	var wg sync.WaitGroup
	var moving sync.WaitGroup
	for range 4 {
		client, server := p.connect(t, b6)
		for _, c := range []*Conn{client, server} {
			wg.Go(func() {
				for {
					if _, err := c.Write(make([]byte, 100_000)); err != nil {
						if c == client && !errors.Is(err, net.ErrClosed) {
							t.Errorf("write on the closing side: %v, want %v", err, net.ErrClosed)
						}
						return
					}
				}
			})
			moving.Add(1)
			wg.Go(func() {
				buf := make([]byte, 100_000)
				for first := true; ; first = false {
					_, err := c.Read(buf)
					if first {
						moving.Done()
					}
					if err != nil {
						if c == client && !errors.Is(err, net.ErrClosed) {
							t.Errorf("read on the closing side: %v, want %v", err, net.ErrClosed)
						}
						return
					}
				}
			})
		}
	}
	moving.Wait()
	p.a.Close()
	p.b.Close()
	wg.Wait()
	if _, err := p.a.DialTCP(within(t), netip.AddrPortFrom(b6, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dialling with a closed stack gives %v", err)
	}
	if _, err := p.a.Listen(netip.AddrPortFrom(a6, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("listening on a closed stack gives %v", err)
	}
	if _, err := p.a.ListenPacket(netip.AddrPortFrom(a6, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("listening for UDP on a closed stack gives %v", err)
	}
	if _, err := p.a.Ping(within(t), b6, 1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("pinging with a closed stack gives %v", err)
	}
}

// While nobody reads the device, receiving never blocks, UDP writers wait for their socket's send
// buffer until their deadline, and closing is not delayed.
func TestNobodyReadsTheDevice(t *testing.T) {
	s, err := New(Options{Addresses: []netip.Addr{a6, a4}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	u, err := s.ListenPacket(netip.AddrPortFrom(a6, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	_ = u.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = u.WriteTo(make([]byte, 1000), net.UDPAddrFromAddrPort(netip.AddrPortFrom(b6, 9)))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing UDP ends with %v, want %v", err, os.ErrDeadlineExceeded)
	}
	echo := echoRequest(b4, a4)
	for range queuePackets {
		inject(t, s, echo) // Each is answered at once, into the queue.
	}
	if got := s.Stats().Dropped[DropQueueFull]; got == 0 {
		t.Error("no packet was dropped by a full queue")
	}
}

// echoRequest returns a whole ICMP packet (RFC 792).
func echoRequest(src, dst netip.Addr) []byte {
	icmp := []byte{8, 0, 0, 0, 0, 1, 0, 1}
	binary.BigEndian.PutUint16(icmp[2:], ^onesSum(icmp))
	p := append(ipv4Packet(src, dst), icmp...)
	p[3], p[ipv4Proto] = byte(len(p)), 1
	binary.BigEndian.PutUint16(p[ipv4Checksum:], ^onesSum(p[:ipv4HeaderLen]))
	return p
}

// inject passes packets to the device as WireGuard would.
func inject(t *testing.T, s *Stack, packets ...[]byte) {
	t.Helper()
	const offset = 16
	var bufs [][]byte
	for _, p := range packets {
		bufs = append(bufs, append(make([]byte, offset), p...))
	}
	if n, err := s.Device().Write(bufs, offset); n != len(packets) || err != nil {
		t.Fatalf("Write took %d of %d packets: %v", n, len(packets), err)
	}
}

// ipv6Packet returns a bare IPv6 packet with next header "none".
func ipv6Packet(src, dst netip.Addr) []byte {
	p := make([]byte, ipv6HeaderLen)
	p[0], p[6], p[7] = 0x60, 59, 64
	copy(p[ipv6Src:], src.AsSlice())
	copy(p[ipv6Dst:], dst.AsSlice())
	return p
}

func ipv4Packet(src, dst netip.Addr) []byte {
	p := make([]byte, ipv4HeaderLen)
	p[0], p[3], p[8], p[9] = 0x45, ipv4HeaderLen, 64, 59
	copy(p[ipv4Src:], src.AsSlice())
	copy(p[ipv4Dst:], dst.AsSlice())
	return p
}

func TestMisdirectedPacketsAreDroppedCountedAndReported(t *testing.T) {
	type report struct{ src, dst netip.Addr }
	var reports []report
	s, err := New(Options{
		Addresses:     []netip.Addr{a6, a4},
		OnMisdirected: func(src, dst netip.Addr) { reports = append(reports, report{src, dst}) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	third6, third4 := netip.MustParseAddr("fd00::c"), netip.MustParseAddr("10.0.0.3")
	inject(t, s,
		ipv6Packet(b6, third6), ipv6Packet(b6, third6), ipv6Packet(b6, third6), // One report.
		ipv4Packet(b4, third4),
		ipv6Packet(b6, netip.MustParseAddr("ff02::1")),
		ipv4Packet(b4, netip.MustParseAddr("255.255.255.255")),
		[]byte{0x60, 1, 2}, []byte{0x45}, nil, []byte{0x10, 0, 0, 0},
	)
	want := []report{{b6, third6}, {b4, third4}}
	if len(reports) != 2 || reports[0] != want[0] || reports[1] != want[1] {
		t.Errorf("reports are %v, want %v", reports, want)
	}
	st := s.Stats()
	for reason, want := range map[string]uint64{DropMisdirected: 4, DropMulticast: 2, DropMalformed: 4, DropQueueFull: 0} {
		if got := st.Dropped[reason]; got != want {
			t.Errorf("dropped by reason %s: %d, want %d", reason, got, want)
		}
	}
	if st.ReceivedPackets != 10 {
		t.Errorf("%d packets received, want 10", st.ReceivedPackets)
	}
}

// A peer that pings as fast as it can leaves room in the queue for what others are answered.
func TestEchoesToAPeerLeaveRoomForOthers(t *testing.T) {
	s := stackOfSites(t)
	ping := func(from netip.Addr) []byte {
		p := ipv6Packet(from, a6)[:ipv6HeaderLen]
		p[ipv6NextHeader] = protocolICMPv6
		binary.BigEndian.PutUint16(p[ipv6PayloadLen:], icmpHeaderLen)
		echo := []byte{128, 0, 0, 0, 0, 1, 0, 1}
		binary.BigEndian.PutUint16(echo[2:], header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: echo, Src: toAddress(from), Dst: toAddress(a6)}))
		return append(p, echo...)
	}
	many := netip.MustParseAddr("fd01::")
	other := otherSite(s, many)
	for range 2 * queuePackets {
		many = many.Next()
		inject(t, s, ping(many))
	}
	full := s.Stats().Dropped[DropQueueFull]
	inject(t, s, ping(other))
	if dropped := s.Stats().Dropped[DropQueueFull]; full == 0 || dropped != full {
		t.Errorf("%d answers are dropped, and %d with that to another peer", full, dropped)
	}
}

// A peer that sends from many addresses is reported as often as any, and hides nobody.
func TestMisdirectedPacketsAreReportedByPeer(t *testing.T) {
	var from []netip.Addr
	s, err := New(Options{Addresses: []netip.Addr{a6}, Owner: siteOf,
		OnMisdirected: func(src, _ netip.Addr) { from = append(from, src) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	many, other := netip.MustParseAddr("fd01::"), netip.MustParseAddr("fd02::1")
	for range 2 * misdirectedMax {
		many = many.Next()
		inject(t, s, ipv6Packet(many, b6))
	}
	inject(t, s, ipv6Packet(other, b6))
	if n := len(from); n == 0 || n > misdirectedMax/2 || from[n-1] != other {
		t.Errorf("%d reports, the last of %v; want few, and the other peer's last", n, from[max(n-1, 0):])
	}
}

func TestMisdirectedReportsAreLimited(t *testing.T) {
	var m misdirectedLog
	now := time.Unix(1000, 0)
	if !m.first(a6, now) || m.first(a6, now.Add(999*time.Millisecond)) || !m.first(a4, now) {
		t.Error("not one report per source and second")
	}
	if !m.first(a6, now.Add(time.Second)) {
		t.Error("no report after a second")
	}
	addr := a6
	for range 2 * misdirectedMax {
		addr = addr.Next()
		m.first(addr, now.Add(time.Second))
	}
	if len(m.seen) > misdirectedMax {
		t.Errorf("%d sources are remembered, want at most %d", len(m.seen), misdirectedMax)
	}
	if !m.first(addr.Next(), now.Add(3*time.Second)) {
		t.Error("old sources are not forgotten")
	}
}

func TestEveryDropReasonIsAlwaysInStats(t *testing.T) {
	s, err := New(Options{Addresses: []netip.Addr{a6}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := s.Stats().Dropped
	for _, reason := range []string{
		DropMalformed, DropMisdirected, DropMulticast, DropForgedError, DropSmallMSS, DropMemory, DropQueueFull, DropClosed, DropUnsegmented,
		DropPending, DropAcceptQueue, DropInvalid, DropUDPNoSocket, DropUDPQueueFull,
	} {
		if n, ok := got[reason]; !ok || n != 0 {
			t.Errorf("a new stack's drops by reason %s: %d, %v; want 0", reason, n, ok)
		}
	}
}
