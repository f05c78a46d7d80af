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

	"github.com/postern-dev/postern/tunnel/peer"
)

// patience only bounds failure; nothing waits that long when it works.
const patience = 30 * time.Second

// kinds are the binds that must behave alike.
var kinds = []struct {
	name   string
	make   func(Options) *Bind
	ipv6   bool // serves IPv6 as well
	sticky bool // answers from the address that was spoken to
	empty  bool // tells empty datagrams from none
}{
	{"New", New, true, lean, lean},
	{"New with small buffers", newSpread, true, lean, lean},
	// wireguard-go's bind forgets the local address of what it received with UDP_GRO,
	// and an empty datagram makes it lose those that it received together with it.
	{"NewStd", NewStd, true, false, false},
	{"NewPacket", func(o Options) *Bind { return NewPacket(listenLoopback, o) }, false, false, true},
}

// newSpread is New as it is without NET_ADMIN: on Linux data is spread over several sockets.
func newSpread(o Options) *Bind {
	o.MostPerSocket = 212_992
	return New(o)
}

// lean is whether New makes a bind of our own on this system.
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

// datagram is one that a Bind gave to the device.
type datagram struct {
	data []byte
	ep   conn.Endpoint
}

// running is an open Bind with somebody reading it as the device does.
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
	case <-time.After(patience):
		t.Fatalf("no datagram came; counters %+v", r.Counters())
		return datagram{}
	}
}

// again does what brings a copy of a message that has come just before, and waits until it
// has been kept from the device; or given to it, where the machine was so slow that it is no
// copy any more.
func (r *running) again(t *testing.T, bring func()) {
	t.Helper()
	before := r.counters.copies.Load()
	bring()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
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

// direct are the paths from our own socket to the addresses.
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

// socket opens a plain UDP socket on the address.
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
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return b[:n], unmapped(from)
}

// expectSilence fails if anything has arrived on the socket. The caller has made sure
// that whatever was to be sent has been.
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

// data makes a WireGuard data message of a size, told apart by n.
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
