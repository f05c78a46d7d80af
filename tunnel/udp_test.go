package tunnel

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	waits "github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// The tests in this file use real sockets on the loopback interface, in real time.

var loopback = netip.MustParseAddr("127.0.0.1")

func startReal(t *testing.T, make func(underlay.Options) *underlay.Bind, o underlay.Options) *node {
	t.Helper()
	return startOn(t, newKey(t), netip.AddrPortFrom(loopback, 0), make(o))
}

func TestTunnelOverRealSockets(t *testing.T) {
	for name, make := range map[string]func(underlay.Options) *underlay.Bind{"New": underlay.New, "NewStd": underlay.NewStd} {
		t.Run(name, func(t *testing.T) {
			a, b := startReal(t, make, underlay.Options{}), startReal(t, make, underlay.Options{})
			a.set(b.as("b"))
			v6 := netip.AddrPortFrom(netip.IPv6Loopback(), a.addr.Port())
			for _, endpoint := range []netip.AddrPort{a.addr, v6} {
				b.set()
				b.set(a.as("a", endpoint))
				begin := time.Now()
				waitFor(t, "a handshake", func() bool { return b.stats(a).LastHandshake.After(begin) })
				connect(a, b)
				if got := b.stats(a).Endpoint; got != endpoint {
					t.Errorf("endpoint: got %v, want %v", got, endpoint)
				}
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	a := startReal(t, underlay.New, underlay.Options{})
	d := newFakeTun()
	e, err := New(Options{PrivateKey: newKey(t), ListenPort: a.addr.Port(), Device: d, Underlay: underlay.New(underlay.Options{})})
	if err == nil {
		e.Close()
	}
	if !errors.Is(err, ErrPortInUse) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v, want ErrPortInUse", err)
	}
	select {
	case <-d.closed:
	default:
		t.Error("the device was left open")
	}
}

func TestNoPrivateKey(t *testing.T) {
	d := newFakeTun()
	if _, err := New(Options{Device: d, Underlay: underlay.New(underlay.Options{})}); err == nil {
		t.Error("started without a private key")
	}
	<-d.closed
}

func TestClosedEngineRefuses(t *testing.T) {
	a := startReal(t, underlay.New, underlay.Options{})
	a.stop()
	if err := a.SetPeers(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("SetPeers: got %v, want ErrClosed", err)
	}
	if err := a.Redial(peer.PublicKey{1}); !errors.Is(err, ErrClosed) {
		t.Errorf("Redial: got %v, want ErrClosed", err)
	}
	a.stop() // a second stop does nothing
}

func TestRedialErrors(t *testing.T) {
	a := startReal(t, underlay.New, underlay.Options{})
	k := newKey(t).Public()
	if err := a.Redial(k); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("unknown peer: got %v, want ErrUnknownPeer", err)
	}
	a.set(peer.Config{Name: "silent", PublicKey: k})
	if err := a.Redial(k); !errors.Is(err, underlay.ErrNoCandidates) || !strings.Contains(err.Error(), `"silent"`) {
		t.Errorf("peer without an address: got %v, want ErrNoCandidates and its name", err)
	}
}

func TestDeviceThatGoesAwayEndsTheTunnel(t *testing.T) {
	a := startReal(t, underlay.New, underlay.Options{})
	if err := a.tun.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.done:
	case <-time.After(waits.Left()):
		t.Error("the watch goes on without a device")
	}
}

// plainDevice is unmodified wireguard-go, with its own bind and one peer.
func plainDevice(t *testing.T, key peer.PrivateKey, p uapi.PeerConfig) (*fakeTun, uint16) {
	t.Helper()
	d := newFakeTun()
	bind := conn.NewStdNetBind()
	dev := device.NewDevice(d, bind, device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(dev.Close)
	var port uint16
	text, err := uapi.Config{PrivateKey: &key, ListenPort: &port, Peers: []uapi.PeerConfig{p}}.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.IpcSet(string(text)); err != nil {
		t.Fatal(err)
	}
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	state, err := dev.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := uapi.ParseDevice(state)
	if err != nil {
		t.Fatal(err)
	}
	return d, parsed.ListenPort
}

func TestStockPeer(t *testing.T) {
	for name, stockDials := range map[string]bool{"dials us": true, "is dialled": false} {
		t.Run(name, func(t *testing.T) {
			a := startReal(t, underlay.New, underlay.Options{})
			key := newKey(t)
			psk := peer.PresharedKeyFromBytes([32]byte{3})
			inner := netip.MustParseAddr("fc00::7") // outside the overlay's fd00::/8
			p := uapi.PeerConfig{
				PublicKey: a.PublicKey(), PresharedKey: &psk,
				AllowedIPs: []netip.Prefix{netip.PrefixFrom(a.overlay(), 128)},
			}
			if stockDials {
				p.Endpoint = a.addr.String()
			}
			stock, port := plainDevice(t, key, p)
			c := peer.Config{
				Name: "router", PublicKey: key.Public(), PresharedKey: psk,
				Stock: true, AllowedIPs: []netip.Prefix{netip.PrefixFrom(inner, 128)},
			}
			there, back := packet(inner, a.overlay(), "there"), packet(a.overlay(), inner, "back")
			if stockDials {
				a.set(c)
				stock.outbound <- there
				arrives(t, a.tun, there)
				a.tun.outbound <- back
				arrives(t, stock, back)
			} else {
				c.Endpoints = []netip.AddrPort{netip.AddrPortFrom(loopback, port)}
				a.set(c)
				a.tun.outbound <- back
				arrives(t, stock, back)
				stock.outbound <- there
				arrives(t, a.tun, there)
			}
			if got := a.Snapshot().Peers[key.Public()].Endpoint; got != netip.AddrPortFrom(loopback, port) {
				t.Errorf("endpoint: got %v, want %v:%d", got, loopback, port)
			}
			// A packet whose source is not an address of the stock peer is dropped.
			stock.outbound <- packet(netip.MustParseAddr("fc00::8"), a.overlay(), "forged")
			stock.outbound <- there
			if got := <-a.tun.inbound; !bytes.Equal(got, there) {
				t.Errorf("got packet %x, want only those from the peer's own address", got)
			}
		})
	}
}

func arrives(t *testing.T, d *fakeTun, want []byte) {
	t.Helper()
	select {
	case got := <-d.inbound:
		if !bytes.Equal(got, want) {
			t.Errorf("got packet %x, want %x", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("no packet arrived")
	}
}

func TestScannerMeetsSilence(t *testing.T) {
	const datagrams, burst = scanned, 100
	arrived := make(chan struct{}, datagrams) // markers, the last of each burst
	bind := underlay.New(underlay.Options{OnSTUN: func(p []byte, _ peer.Path) {
		if bytes.Equal(p, marker) {
			arrived <- struct{}{}
		}
	}})
	a := startOn(t, newKey(t), netip.AddrPortFrom(loopback, 0), bind)
	b := startReal(t, underlay.New, underlay.Options{})
	initiation := recordInitiation(t, a, b)
	connect(a, b)

	scanner, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loopback.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer scanner.Close()
	replies := make(chan []byte, datagrams)
	go func() {
		defer close(replies)
		buf := make([]byte, 1<<16)
		for {
			n, err := scanner.Read(buf)
			if err != nil {
				return
			}
			replies <- bytes.Clone(buf[:n])
		}
	}()
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	before := bind.Counters().Received

	rng := rand.New(rand.NewPCG(1, 2))
	for i := range datagrams {
		p := probe(rng, initiation)
		if i%burst == burst-1 {
			p = marker
		}
		if _, err := scanner.WriteToUDPAddrPort(p, a.addr); err != nil {
			t.Fatal(err)
		}
		if i%burst == burst-1 {
			select {
			case <-arrived:
			case <-time.After(time.Minute):
				t.Fatalf("burst %d did not arrive", i/burst)
			}
		}
		if i%4_000 == 0 { // the tunnel works meanwhile
			a.send(b, "through")
			b.expect(a, "through")
		}
	}
	connect(a, b)
	if got := bind.Counters().Received - before; got < datagrams {
		t.Errorf("%d datagrams arrived, want %d", got, datagrams)
	}
	scanner.Close()
	for r := range replies {
		// WireGuard answers a valid mac1 with a cookie while it is under load
		// (whitepaper §5.3); the replayed handshakes have one.
		if len(r) != 64 || r[0] != 3 {
			t.Errorf("the scanner got %d bytes: %x", len(r), r)
		}
	}
	waitFor(t, "the end of surplus goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
	if grown := heapInUse() - heap; grown > 16<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	if got := a.stats(b).Endpoint; got != b.addr {
		t.Errorf("the peer's endpoint moved to %v", got)
	}
}

// marker is a recognisable STUN binding request.
var marker = []byte("\x00\x01\x00\x00\x21\x12\xa4\x42end of burst")

// recordInitiation connects b to a through a socket that stores b's first initiation. The socket
// forwards from another port, so b's later direct handshake moves the path to a.
func recordInitiation(t *testing.T, a, b *node) []byte {
	t.Helper()
	tap, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loopback.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	a.set(b.as("b"))
	b.set(a.as("a", tap.LocalAddr().(*net.UDPAddr).AddrPort()))
	buf := make([]byte, 1<<16)
	if err := tap.SetReadDeadline(time.Now().Add(waits.Left())); err != nil {
		t.Fatal(err)
	}
	n, _, err := tap.ReadFromUDPAddrPort(buf)
	if err != nil || n != 148 {
		t.Fatalf("got %d bytes, %v, want an initiation", n, err)
	}
	if _, err := tap.WriteToUDPAddrPort(buf[:n], a.addr); err != nil {
		t.Fatal(err)
	}
	if n, _, err := tap.ReadFromUDPAddrPort(buf[200:]); err != nil || n != 92 {
		t.Fatalf("got %d bytes, %v, want the response", n, err)
	}
	b.set(a.as("a", a.addr))
	waitFor(t, "a direct handshake", func() bool { return !b.stats(a).LastHandshake.IsZero() && a.stats(b).Endpoint == b.addr })
	return bytes.Clone(buf[:148])
}

// probe returns one datagram of a scanner.
func probe(rng *rand.Rand, initiation []byte) []byte {
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	switch rng.IntN(6) {
	case 0:
		return initiation
	case 1: // cut short, or with the body of another type
		b := bytes.Clone(initiation)
		copy(b[100:], random(48))
		return b[:rng.IntN(len(b)+1)]
	case 2: // well-formed except for the keys
		size := []int{0, 148, 92, 64, 32 + rng.IntN(1400)}
		typ := 1 + rng.IntN(4)
		b := random(size[typ])
		copy(b, []byte{byte(typ), 0, 0, 0})
		return b
	case 3: // STUN binding request
		return append([]byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, random(12)...)
	default:
		return random(rng.IntN(1400))
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // the second run frees what sync.Pool held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkSnapshot reads a thousand peers.
func BenchmarkSnapshot(b *testing.B) {
	private, err := peer.NewPrivateKey()
	if err != nil {
		b.Fatal(err)
	}
	e, err := New(Options{PrivateKey: private, Device: newFakeTun(), Underlay: underlay.New(underlay.Options{})})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	var peers []peer.Config
	for range 1000 {
		k, err := peer.NewPrivateKey()
		if err != nil {
			b.Fatal(err)
		}
		peers = append(peers, peer.Config{Name: k.Public().String(), PublicKey: k.Public()})
	}
	if err := e.SetPeers(peers); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if got := len(e.Snapshot().Peers); got != 1000 {
			b.Fatalf("got %d peers", got)
		}
	}
}
