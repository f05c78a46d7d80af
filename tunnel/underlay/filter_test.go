package underlay

import (
	"net/netip"
	"testing"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
)

// FuzzFilter sends arbitrary datagrams from a peer's address, in the middle of two handshakes.
func FuzzFilter(f *testing.F) {
	f.Add(initiation(5), responseOf(77, 5), sessionData(78))
	f.Add(responseOf(77, 9), sessionData(77), stunRequest())
	f.Add([]byte{0x40, 1, 0, 4, 1, 2, 3, 4}, []byte{}, []byte{4, 0, 0, 0})
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		b := NewPacket(listenLoopback, Options{OnSTUN: func([]byte, peer.Path) {}})
		proved := 0
		decide(b, func(e handshake.Event) {
			if e.Kind == handshake.Began {
				proved++
			}
		})
		b.AddServer(beyond, func(p []byte) bool { return len(p)%2 == 0 })
		b.Manage("x")
		x, err := b.ParseEndpoint("peer:x")
		if err != nil {
			t.Fatal(err)
		}
		known := netip.MustParseAddrPort("192.0.2.1:1")
		b.SetCandidates("x", direct(known))
		_ = b.Send([][]byte{initiation(9)}, x) // it is closed, but remembers
		_ = b.Send([][]byte{responseOf(78, 5)}, x)

		packets := [][]byte{first, second, third}
		sizes, eps := make([]int, 3), make([]conn.Endpoint, 3)
		for i, p := range packets {
			sizes[i], eps[i] = len(p), b.inner.endpoint(beyond)
		}
		b.filter(packets, sizes, eps)
		for i, p := range packets {
			if want := Classify(p) == WireGuard; want != (sizes[i] > 0) {
				t.Errorf("%x: %d bytes are left for the device", p, sizes[i])
			}
		}
		if b.PathTo("x") != peer.Direct(known) || proved > 0 {
			t.Errorf("what a stranger sent moved the path to %v", b.PathTo("x"))
		}
	})
}

// ttlConn records the TTL of each datagram.
type ttlConn struct {
	PacketConn
	asked chan uint8
}

func (c ttlConn) WriteToTTL(b []byte, to netip.AddrPort, ttl uint8) (int, error) {
	c.asked <- ttl
	return c.WriteToUDPAddrPort(b, to)
}

func TestProbeOverASocketThatWasHandedIn(t *testing.T) {
	asked := make(chan uint8, 2)
	b := start(t, NewPacket(func(port uint16) (PacketConn, error) {
		c, err := listenLoopback(port)
		return ttlConn{c, asked}, err
	}, Options{}))
	c := plain(t, loopback4)
	for _, o := range []SendOptions{{TTL: 3}, {}, {DontFragment: true}} {
		if err := b.WriteProbe(stunRequest(), peer.Direct(localAddr(c)), o); err != nil {
			t.Fatal(err)
		}
		expect(t, c, "probe", stunRequest())
	}
	if got := <-asked; got != 3 || len(asked) != 0 {
		t.Errorf("asked for a TTL of %d, and %d more times; want 3 once", got, len(asked))
	}
}

// wishConn records the options of each datagram.
type wishConn struct {
	PacketConn
	asked chan SendOptions
}

func (c wishConn) WriteWith(b []byte, to netip.AddrPort, ttl int, dontFragment bool) (int, error) {
	c.asked <- SendOptions{TTL: ttl, DontFragment: dontFragment}
	return c.WriteToUDPAddrPort(b, to)
}

// Only probes are sent with DF, and only if they ask for it.
func TestProbesMayForbidFragmentsWhereTheSocketCan(t *testing.T) {
	asked := make(chan SendOptions, 4)
	b := start(t, NewPacket(func(port uint16) (PacketConn, error) {
		c, err := listenLoopback(port)
		return wishConn{c, asked}, err
	}, Options{}))
	c := plain(t, loopback4)
	for _, o := range []SendOptions{{DontFragment: true}, {TTL: 3}, {}} {
		if err := b.WriteProbe(stunRequest(), peer.Direct(localAddr(c)), o); err != nil {
			t.Fatal(err)
		}
		expect(t, c, "probe", stunRequest())
	}
	if err := b.Send([][]byte{data(1, 32)}, b.inner.endpoint(localAddr(c))); err != nil {
		t.Fatal(err)
	}
	expect(t, c, "data", data(1, 32))
	if first, second := <-asked, <-asked; first != (SendOptions{DontFragment: true}) || second != (SendOptions{TTL: 3}) || len(asked) != 0 {
		t.Errorf("asked for %+v, %+v and %d more; want DF, a TTL of 3 and none", first, second, len(asked))
	}
}
