package underlay

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/testenv/patience"
)

// leanOf returns the inner bind of a Bind made by New.
func leanOf(b *Bind) *leanBind { return b.inner.(*leanBind) }

// refusing makes the bind's system calls fail as refuse says. It gets the number of datagrams and
// whether a source address is set.
func refusing(b *Bind, refuse func(datagrams int, source bool) unix.Errno) {
	lean := leanOf(b)
	lean.sendmsg = func(fd uintptr, m *unix.Msghdr) unix.Errno {
		source := int(m.Controllen) >= unix.CmsgSpace(unix.SizeofInet4Pktinfo)
		if errno := refuse(int(m.Iovlen), source); errno != 0 {
			return errno
		}
		return sendmsg(fd, m)
	}
}

func TestSendFallsBack(t *testing.T) {
	for name, test := range map[string]struct {
		refuse     func(datagrams int, source bool) unix.Errno
		segmentsOn bool // whether UDP_SEGMENT is used afterwards
		sourceKept bool
	}{
		"nothing is wrong": {func(int, bool) unix.Errno { return 0 }, true, true},
		"segments longer than the link takes": {func(n int, _ bool) unix.Errno {
			if n > 1 {
				return unix.EMSGSIZE
			}
			return 0
		}, true, true},
		"device without checksum offload": {func(n int, _ bool) unix.Errno {
			if n > 1 {
				return unix.EIO
			}
			return 0
		}, false, true},
		"segments longer than the link takes, before Linux 6.14": {func(n int, _ bool) unix.Errno {
			if n > 1 {
				return unix.EINVAL
			}
			return 0
		}, true, true},
		"source address is gone": {func(_ int, source bool) unix.Errno {
			if source {
				return unix.EINVAL
			}
			return 0
		}, true, false},
		"source address is gone, by the routing table": {func(_ int, source bool) unix.Errno {
			if source {
				return unix.ENETUNREACH
			}
			return 0
		}, true, false},
		"source address is gone, by its absence": {func(_ int, source bool) unix.Errno {
			if source {
				return unix.EADDRNOTAVAIL
			}
			return 0
		}, true, false},
		"pending error of an earlier datagram": {onceRefused(), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bind := New(Options{})
			refusing(bind, test.refuse)
			b, c := start(t, bind), plain(t, loopback4)
			write(t, c, data(0, 32), b.addr())
			ep := b.next(t).ep
			var want [][]byte
			for i := range 10 {
				want = append(want, data(uint64(i), 1000))
			}
			if err := b.Send(want, ep); err != nil {
				t.Fatalf("send: %v", err)
			}
			for i := range want {
				if got, _ := read(t, c); !bytes.Equal(got, want[i]) {
					t.Errorf("datagram %d: got %.20x…", i, got)
				}
			}
			expectSilence(t, c)
			if on := !leanOf(bind).v4.Load().noSegments.Load(); on != test.segmentsOn {
				t.Errorf("UDP_SEGMENT in use: got %v, want %v", on, test.segmentsOn)
			}
			if ep.SrcIP().IsValid() != test.sourceKept {
				t.Errorf("source address: got %v, want kept %v", ep.SrcIP(), test.sourceKept)
			}
		})
	}
}

func onceRefused() func(int, bool) unix.Errno {
	calls := 0
	return func(int, bool) unix.Errno {
		if calls++; calls == 1 {
			return unix.ECONNREFUSED
		}
		return 0
	}
}

func TestSendErrorOfOneRunDoesNotStopTheOthers(t *testing.T) {
	bind := New(Options{})
	refusing(bind, func(n int, _ bool) unix.Errno {
		if n == 3 {
			return unix.EPERM // as a packet filter causes
		}
		return 0
	})
	b, c := start(t, bind), plain(t, loopback4)
	ep, err := b.ParseEndpoint(localAddr(c).String())
	if err != nil {
		t.Fatal(err)
	}
	bufs := [][]byte{data(1, 100), data(2, 100), data(3, 100), data(4, 200), data(5, 200)}
	if err := b.Send(bufs, ep); err == nil {
		t.Error("got no error, want the first run's")
	}
	for _, want := range bufs[3:] {
		if got, _ := read(t, c); !bytes.Equal(got, want) {
			t.Errorf("got %.20x, want %.20x", got, want)
		}
	}
}

func TestRun(t *testing.T) {
	many := func(n, size int) []int {
		sizes := make([]int, n)
		for i := range sizes {
			sizes[i] = size
		}
		return sizes
	}
	for name, test := range map[string]struct {
		sizes []int
		want  int
	}{
		"one":                       {[]int{100}, 1},
		"equal":                     {[]int{100, 100, 100}, 3},
		"a smaller one ends it":     {[]int{100, 100, 50, 50}, 3},
		"a greater one is left out": {[]int{100, 100, 150}, 2},
		"an empty one is left out":  {[]int{100, 0}, 1},
		"an empty one goes alone":   {[]int{0, 0}, 1},
		"64 segments":               {many(100, 100), 64},
		"what one frame carries":    {many(64, 1452), 45},
		"less than 65536 bytes":     {many(64, 1424), 45},
	} {
		t.Run(name, func(t *testing.T) {
			var bufs [][]byte
			for _, size := range test.sizes {
				bufs = append(bufs, make([]byte, size))
			}
			if got := run(bufs); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// The kernel cuts a frame of 65536 bytes before it sends it, also where nothing else would: then as
// many system calls receive it as datagrams. A run is not that long.
func TestARunIsReceivedInASingleCall(t *testing.T) {
	const size = 1424 // 46 of them fit a UDP packet
	receiver, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	raw, err := receiver.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var gro error
	if err := errors.Join(raw.Control(func(fd uintptr) {
		gro = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1)
	}), gro); err != nil {
		t.Fatal(err)
	}
	b := start(t, New(Options{}))
	to, err := b.ParseEndpoint(receiver.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	bufs := make([][]byte, 64)
	for i := range bufs {
		bufs[i] = data(uint64(i), size)
	}
	if err := b.Send(bufs, to); err != nil {
		t.Fatal(err)
	}
	if err := receiver.SetReadDeadline(time.Now().Add(patience.Left())); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, receiveBuffer)
	for _, want := range []int{45, 19} {
		n, err := receiver.Read(buf)
		if err != nil || n != want*size {
			t.Errorf("received %d bytes, want %d datagrams in one call: %v", n, want, err)
		}
	}
}

// Loopback delivers a UDP_SEGMENT datagram whole, so one recvmsg may return more datagrams than
// the batch has room for.
func TestDatagramsBeyondTheBatchAreKept(t *testing.T) {
	b := New(Options{})
	fns, port, err := b.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	other := start(t, New(Options{}))
	to, err := other.ParseEndpoint(fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	var bufs [][]byte
	for i := range 64 {
		bufs = append(bufs, data(uint64(i), 100))
	}
	if err := other.Send(bufs, to); err != nil {
		t.Fatal(err)
	}
	packets, sizes, eps := make([][]byte, 5), make([]int, 5), make([]conn.Endpoint, 5)
	for i := range packets {
		packets[i] = make([]byte, 2000)
	}
	for got := 0; got < len(bufs); {
		n, err := fns[0](packets, sizes, eps)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if !bytes.Equal(packets[i][:sizes[i]], bufs[got]) {
				t.Fatalf("datagram %d: got %.20x…", got, packets[i][:sizes[i]])
			}
			if addrOf(eps[i]) != other.addr() {
				t.Errorf("datagram %d from %v, want %v", got, addrOf(eps[i]), other.addr())
			}
			got++
		}
	}
}

func TestEndpointsAreSharedWithinAFlow(t *testing.T) {
	b, c, other := start(t, New(Options{})), plain(t, loopback4), plain(t, loopback4)
	write(t, c, data(1, 32), b.addr())
	first := b.next(t).ep
	write(t, other, data(1, 32), b.addr())
	if b.next(t).ep == first {
		t.Error("two flows share an endpoint")
	}
	write(t, c, data(2, 32), b.addr())
	if b.next(t).ep != first {
		t.Error("the flow got a new endpoint for its second datagram")
	}
	first.ClearSrc()
	write(t, c, data(3, 32), b.addr())
	again := b.next(t).ep
	if again == first || again.SrcIP() != loopback4 {
		t.Errorf("after ClearSrc: got source %v, want a new endpoint with %v", again.SrcIP(), loopback4)
	}
	if first.SrcIP().IsValid() {
		t.Error("a cleared source came back on an endpoint that the device holds")
	}
}

func TestFlowTableIsBounded(t *testing.T) {
	var f flows
	made := 0
	lookup := func(i int, keep bool) {
		var key flowKey
		key.port, key.scope = uint16(i), uint32(i>>16)
		f.endpoint(key, keep, func() *leanEndpoint {
			made++
			return newLeanEndpoint(netip.AddrPortFrom(loopback4, uint16(i)), netip.Addr{})
		})
	}
	const sources = 100_000
	const regular = 1 << 20
	for i := range sources {
		lookup(i, true)
		if i%100 == 0 {
			lookup(regular, true)
		}
	}
	if n := len(f.young) + len(f.old); n > 2*flowsKept {
		t.Errorf("the table holds %d flows, want at most %d", n, 2*flowsKept)
	}
	if made != sources+1 {
		t.Errorf("made %d endpoints for %d sources and one that stayed in use", made, sources)
	}
	entries := len(f.young) + len(f.old)
	for i := range 1000 {
		lookup(regular+1+i, false)
	}
	if n := len(f.young) + len(f.old); n != entries {
		t.Errorf("handshakes changed the table from %d to %d flows", entries, n)
	}
}

func TestKernelWithoutIPv6(t *testing.T) {
	for _, err := range []error{unix.EAFNOSUPPORT, unix.EADDRNOTAVAIL, unix.EPROTONOSUPPORT} {
		if !familyMissing(&net.OpError{Op: "listen", Err: err}) {
			t.Errorf("%v: is not taken for a missing address family", err)
		}
	}
	b := start(t, New(Options{}))
	leanOf(b.Bind).v6.Swap(nil).conn.Close() // as if the kernel had no IPv6
	ep, err := b.ParseEndpoint("[::1]:9")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Send([][]byte{data(1, 32)}, ep); !errors.Is(err, unix.EAFNOSUPPORT) {
		t.Errorf("send to IPv6: got %v, want %v", err, unix.EAFNOSUPPORT)
	}
}

func TestLinkLocalEndpointKeepsItsInterface(t *testing.T) {
	ep := newLeanEndpoint(netip.MustParseAddrPort("[fe80::1%1]:5"), netip.MustParseAddr("fe80::2%1"))
	if ep.name.Scope_id != 1 {
		t.Errorf("scope: got %d, want 1", ep.name.Scope_id)
	}
	if got := scopeID("lo"); got != 1 {
		t.Errorf("scope of lo: got %d, want 1", got)
	}
	control := appendControl(make([]byte, 0, 128), ep, 1200)
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 2 {
		t.Fatalf("control messages: got %d, %v, want 2", len(messages), err)
	}
	if src, _ := parseControl(control); src != netip.MustParseAddr("fe80::2%1") {
		t.Errorf("source: got %v, want fe80::2%%1", src)
	}
}
