package tunnel

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	waits "github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// fakeTun is a network device with the test on its other side.
type fakeTun struct {
	outbound chan []byte // packets to be encrypted
	inbound  chan []byte // packets that were decrypted
	events   chan tun.Event
	closed   chan struct{}
	once     sync.Once
}

var _ tun.Device = (*fakeTun)(nil)

func newFakeTun() *fakeTun {
	return &fakeTun{
		outbound: make(chan []byte, 64),
		inbound:  make(chan []byte, 1024),
		events:   make(chan tun.Event),
		closed:   make(chan struct{}),
	}
}

func (d *fakeTun) File() *os.File           { return nil }
func (d *fakeTun) MTU() (int, error)        { return 1420, nil }
func (d *fakeTun) Name() (string, error)    { return "fake", nil }
func (d *fakeTun) Events() <-chan tun.Event { return d.events }
func (d *fakeTun) BatchSize() int           { return 1 }

func (d *fakeTun) Close() error {
	d.once.Do(func() {
		close(d.closed)
		close(d.events)
	})
	return nil
}

func (d *fakeTun) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	select {
	case p := <-d.outbound:
		sizes[0] = copy(bufs[0][offset:], p)
		return 1, nil
	case <-d.closed:
		return 0, os.ErrClosed
	}
}

func (d *fakeTun) Write(bufs [][]byte, offset int) (int, error) {
	for _, b := range bufs {
		select {
		case d.inbound <- bytes.Clone(b[offset:]):
		case <-d.closed:
			return 0, os.ErrClosed
		}
	}
	return len(bufs), nil
}

// packet returns an IPv6 packet with no next header (RFC 8200 §4.7).
func packet(src, dst netip.Addr, payload string) []byte {
	b := make([]byte, 40, 40+len(payload))
	b[0] = 6 << 4
	b[4], b[5] = byte(len(payload)>>8), byte(len(payload))
	b[6], b[7] = 59, 64
	s, d := src.As16(), dst.As16()
	copy(b[8:], s[:])
	copy(b[24:], d[:])
	return append(b, payload...)
}

// memory is a datagram network inside the process. Every address is one socket, and every
// datagram takes 10 ms.
type memory struct {
	mu    sync.Mutex
	conns map[netip.AddrPort]*memoryConn
	// blocked reports which datagrams are lost; nil means none.
	blocked func(from, to netip.AddrPort) bool
	// lost does so by their content; nil means none.
	lost func(m []byte, from, to netip.AddrPort) bool
	// late is the extra delay of a message; nil means none.
	late func(m []byte, from, to netip.AddrPort) time.Duration
	// copies is how many copies of a message arrive; nil means one.
	copies func(m []byte) int
	// initiations counts WireGuard's handshake initiations, lost ones included.
	initiations map[[2]netip.AddrPort]int
}

const oneWay = 10 * time.Millisecond

// What the machine of package handshake waits for.
const (
	tieBreakDelay = handshake.TieBreakDelay
	newPathWait   = 250 * time.Millisecond
	answerLag     = 50 * time.Millisecond
	silenceLimit  = handshake.SilenceLimit
	quietLimit    = 2 * time.Second
)

func newMemory() *memory {
	return &memory{conns: make(map[netip.AddrPort]*memoryConn), initiations: make(map[[2]netip.AddrPort]int)}
}

func (n *memory) block(f func(from, to netip.AddrPort) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked = f
}

func (n *memory) delay(f func(m []byte, from, to netip.AddrPort) time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = f
}

func (n *memory) repeat(f func(m []byte) int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.copies = f
}

// initiationsTo counts the initiations sent between two addresses.
func (n *memory) initiationsTo(from, to netip.AddrPort) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.initiations[[2]netip.AddrPort{from, to}]
}

// listen is the listen function of a host.
func (n *memory) listen(host netip.Addr) func(uint16) (underlay.PacketConn, error) {
	return func(port uint16) (underlay.PacketConn, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		addr := netip.AddrPortFrom(host, port)
		if n.conns[addr] != nil {
			return nil, fmt.Errorf("%v is taken", addr)
		}
		c := &memoryConn{net: n, addr: addr, in: make(chan memoryDatagram, 1024), closed: make(chan struct{})}
		n.conns[addr] = c
		return c, nil
	}
}

type memoryDatagram struct {
	data []byte
	from netip.AddrPort
}

type memoryConn struct {
	net    *memory
	addr   netip.AddrPort
	in     chan memoryDatagram
	closed chan struct{}
}

func (c *memoryConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.addr) }

func (c *memoryConn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	delete(c.net.conns, c.addr)
	close(c.closed)
	return nil
}

func (c *memoryConn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	select {
	case d := <-c.in:
		return copy(b, d.data), d.from, nil
	case <-c.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

func (c *memoryConn) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if b[0] == 1 {
		c.net.initiations[[2]netip.AddrPort{c.addr, to}]++
	}
	if c.net.blocked != nil && c.net.blocked(c.addr, to) || c.net.lost != nil && c.net.lost(b, c.addr, to) {
		return len(b), nil
	}
	d := memoryDatagram{bytes.Clone(b), c.addr}
	takes := oneWay
	if c.net.late != nil {
		takes += c.net.late(b, c.addr, to)
	}
	times := 1
	if c.net.copies != nil {
		times = c.net.copies(b)
	}
	time.AfterFunc(takes, func() {
		for range times {
			c.net.deliver(d, to)
		}
	})
	return len(b), nil
}

func (n *memory) deliver(d memoryDatagram, to netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.conns[to]; c != nil {
		select {
		case c.in <- d:
		default: // Full, as a socket's buffer may be.
		}
	}
}

// node is an Engine under test.
type node struct {
	*Engine
	t    *testing.T
	tun  *fakeTun
	key  peer.PrivateKey
	addr netip.AddrPort // of its socket

	events chan Event
}

func newKey(t *testing.T) peer.PrivateKey {
	t.Helper()
	k, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// startNode runs an Engine on the network. It ends with the test, or by stop.
func startNode(t *testing.T, n *memory, key peer.PrivateKey, addr string) *node {
	t.Helper()
	at := netip.MustParseAddrPort(addr)
	return startOn(t, key, at, underlay.NewPacket(n.listen(at.Addr()), underlay.Options{Logger: logger(t)}))
}

func startOn(t *testing.T, key peer.PrivateKey, at netip.AddrPort, bind *underlay.Bind) *node {
	t.Helper()
	d, events := newFakeTun(), make(chan Event, 1024)
	e, err := New(Options{
		PrivateKey: key, ListenPort: at.Port(), Device: d, Underlay: bind, Logger: logger(t),
		OnEvent: func(event Event) { events <- event },
	})
	if err != nil {
		t.Fatal(err)
	}
	at = netip.AddrPortFrom(at.Addr(), bind.Port())
	nd := &node{Engine: e, t: t, tun: d, key: key, addr: at, events: events}
	t.Cleanup(nd.stop)
	return nd
}

func (n *node) stop() {
	if err := n.Close(); err != nil {
		n.t.Errorf("close: %v", err)
	}
}

func (n *node) overlay() netip.Addr { return peer.OverlayAddr(n.PublicKey()) }

// as returns this node's configuration as another node's peer.
func (n *node) as(name string, endpoints ...netip.AddrPort) peer.Config {
	return peer.Config{Name: name, PublicKey: n.PublicKey(), Endpoints: endpoints}
}

func (n *node) set(peers ...peer.Config) {
	n.t.Helper()
	if err := n.SetPeers(peers); err != nil {
		n.t.Fatalf("set peers: %v", err)
	}
	for _, c := range peers {
		keepPeer(n.Engine, c.PublicKey)
	}
}

func keepPeer(e *Engine, k peer.PublicKey) { keep(e.dev.LookupPeer(device.NoisePublicKey(k))) }

// kept is never collected. wireguard-go's peers have finalizers that receive from their
// channels, which is fatal for channels made inside a synctest bubble.
var kept struct {
	sync.Mutex
	peers []*device.Peer
}

func keep(p *device.Peer) {
	kept.Lock()
	defer kept.Unlock()
	kept.peers = append(kept.peers, p)
}

func (n *node) stats(of *node) PeerStats { return n.Snapshot().Peers[of.PublicKey()] }

// send passes a packet for another node to the device.
func (n *node) send(to *node, payload string) {
	n.tun.outbound <- packet(n.overlay(), to.overlay(), payload)
}

// expect waits for a packet from another node.
func (n *node) expect(from *node, payload string) {
	n.t.Helper()
	want := packet(from.overlay(), n.overlay(), payload)
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		select {
		case got := <-n.tun.inbound:
			if bytes.Equal(got, want) {
				return
			}
		case <-timeout.C:
			n.t.Fatalf("packet %q did not arrive; sender %+v; receiver %+v", payload, from.stats(n), n.stats(from))
		}
	}
}

// connect waits until packets pass both ways.
func connect(a, b *node) {
	a.t.Helper()
	reach(a, b)
	reach(b, a)
	waitFor(a.t, "a session at both ends", func() bool {
		return !a.stats(b).LastHandshake.IsZero() && !b.stats(a).LastHandshake.IsZero()
	})
}

// reach sends packets until one arrives: those under the keys of an old session are lost.
func reach(from, to *node) {
	from.t.Helper()
	to.drain()
	waitFor(from.t, "a packet", func() bool {
		from.send(to, "hello")
		select {
		case got := <-to.tun.inbound:
			return bytes.Equal(got, packet(from.overlay(), to.overlay(), "hello"))
		case <-time.After(200 * time.Millisecond):
			return false
		}
	})
}

// drain forgets the packets that have arrived.
func (n *node) drain() {
	for {
		select {
		case <-n.tun.inbound:
		default:
			return
		}
	}
}

// waitFor polls every 10 ms.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(waits.Left()); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// logger writes to the test's log, except debug records: the scanner test would keep a line for
// each cookie reply and take its own log for a leak.
func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}
