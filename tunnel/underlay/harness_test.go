package underlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

// kinds are the binds, which must behave alike.
var kinds = []struct {
	name   string
	make   func(Options) *Bind
	ipv6   bool // supports IPv6
	sticky bool // answers from the address that the datagram was sent to
	empty  bool // reports empty datagrams
}{
	{"New", New, true, lean, lean},
	{"New with small buffers", newSpread, true, lean, lean},
	// wireguard-go's bind loses the local address of datagrams that it received with UDP_GRO. An
	// empty datagram makes it lose those that it received in the same call.
	{"NewStd", NewStd, true, false, false},
	{"NewPacket", func(o Options) *Bind { return NewPacket(listenLoopback, o) }, false, false, true},
}

// newSpread is New without NET_ADMIN: on Linux data is spread over several sockets.
func newSpread(o Options) *Bind {
	o.MaxPerSocket = 212_992
	return New(o)
}

// lean reports whether New returns our own bind on this system.
const lean = runtime.GOOS == "linux"

func listenLoopback(port uint16) (PacketConn, error) {
	return net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
}

// forEachKind runs a test on every kind of Bind.
func forEachKind(t *testing.T, test func(t *testing.T, make func(Options) *Bind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { test(t, k.make) })
	}
}

// datagram is a datagram that a Bind gave to the device.
type datagram struct {
	data []byte
	ep   conn.Endpoint
}

// running is an open Bind with a reader in place of the device.
type running struct {
	*Bind
	port uint16
	in   chan datagram
}

func start(t *testing.T, b *Bind) *running {
	t.Helper()
	fns, port, err := b.Open(0)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	r := &running{Bind: b, port: port, in: make(chan datagram, 1<<17)}
	var wg sync.WaitGroup
	for _, fn := range fns {
		wg.Go(func() { r.read(t, fn) })
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		wg.Wait()
	})
	return r
}

func (r *running) read(t *testing.T, fn conn.ReceiveFunc) {
	n := r.BatchSize()
	bufs, sizes, eps := make([][]byte, n), make([]int, n), make([]conn.Endpoint, n)
	for i := range bufs {
		bufs[i] = make([]byte, 1<<16)
	}
	for {
		got, err := fn(bufs, sizes, eps)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("receive: got error %v, want none but net.ErrClosed", err)
			}
			return
		}
		for i := range got {
			if sizes[i] > 0 {
				r.in <- datagram{bytes.Clone(bufs[i][:sizes[i]]), eps[i]}
			}
		}
	}
}

// next waits for a datagram.
func (r *running) next(t *testing.T) datagram {
	t.Helper()
	select {
	case d := <-r.in:
		return d
	case <-time.After(patience.Left()):
		t.Fatalf("no datagram came; counters %+v", r.Counters())
		return datagram{}
	}
}

// again causes a copy of a message that has just arrived, and waits until it is dropped. On a
// slow machine it may no longer count as a copy; then the device gets it.
func (r *running) again(t *testing.T, bring func()) {
	t.Helper()
	before := r.counters.copies.Load()
	bring()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience.Left())
	for r.counters.copies.Load() == before {
		select {
		case <-r.in:
			return
		case <-tick.C:
		case <-late:
			t.Fatalf("no copy came; counters %+v", r.Counters())
		}
	}
}

// direct returns the paths from our own socket to the addresses.
func direct(addrs ...netip.AddrPort) []peer.Path {
	paths := make([]peer.Path, len(addrs))
	for i, a := range addrs {
		paths[i] = peer.Path{Remote: a}
	}
	return paths
}

func (r *running) addr() netip.AddrPort { return netip.AddrPortFrom(loopback4, r.port) }

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.IPv6Loopback()
)

// plain opens a plain UDP socket on the address.
func plain(t *testing.T, addr netip.Addr) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func localAddr(c *net.UDPConn) netip.AddrPort {
	return unmapped(c.LocalAddr().(*net.UDPAddr).AddrPort())
}

func write(t *testing.T, c *net.UDPConn, b []byte, to netip.AddrPort) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort(b, to); err != nil {
		t.Fatalf("write to %s: %v", to, err)
	}
}

// read waits for a datagram.
func read(t *testing.T, c *net.UDPConn) ([]byte, netip.AddrPort) {
	t.Helper()
	b := make([]byte, 1<<16)
	if err := c.SetReadDeadline(time.Now().Add(patience.Left())); err != nil {
		t.Fatal(err)
	}
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return b[:n], unmapped(from)
}

// expectSilence fails if anything has arrived on the socket. The caller has made sure that
// everything was sent.
func expectSilence(t *testing.T, c *net.UDPConn) {
	t.Helper()
	b := make([]byte, 1<<16)
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, from, err := c.ReadFromUDPAddrPort(b); err == nil {
		t.Errorf("got %x from %s, want silence", b[:n], from)
	}
}

// data returns a WireGuard data message of a size, identified by n.
func data(n uint64, size int) []byte {
	b := make([]byte, size)
	b[0] = typeData
	binary.BigEndian.PutUint64(b[8:], n)
	for i := 16; i < size; i++ {
		b[i] = byte(i) * byte(n+1)
	}
	return b
}

func initiation(sender uint32) []byte {
	b := make([]byte, sizeInitiation)
	b[0] = typeInitiation
	binary.LittleEndian.PutUint32(b[4:], sender)
	binary.LittleEndian.PutUint32(b[8:], sender) // the ephemeral key
	return b
}

func response(receiver uint32) []byte {
	b := make([]byte, sizeResponse)
	b[0] = typeResponse
	binary.LittleEndian.PutUint32(b[4:], 77)
	binary.LittleEndian.PutUint32(b[8:], receiver)
	b[12] = 77 // the ephemeral key
	return b
}

func stunRequest() []byte {
	b := make([]byte, stunHeaderSize)
	b[1] = 1
	binary.BigEndian.PutUint32(b[4:], stunMagicCookie)
	return b
}
