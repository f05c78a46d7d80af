package underlay

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

// relayedPacket is a packet that was given to a relay.
type relayedPacket struct {
	data []byte
	to   netip.AddrPort
}

var beyond = netip.MustParseAddrPort("203.0.113.8:51820") // an address beyond relays

func TestRelayIsASecondWayInAndOut(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		type message struct {
			data []byte
			from peer.Path
		}
		stun, sent := newQueue[message](), newQueue[relayedPacket]()
		b := start(t, make(Options{OnSTUN: func(p []byte, from peer.Path) { stun.put(message{bytes.Clone(p), from}) }}))
		deliver, remove := b.AddRelay("relay-1", func(ps [][]byte, to netip.AddrPort) error {
			for _, p := range ps {
				sent.put(relayedPacket{bytes.Clone(p), to})
			}
			return nil
		})
		path := peer.Path{Via: "relay-1", Remote: beyond}

		buf := data(1, 1452)
		deliver(buf, beyond)
		clear(buf) // the packet must not be kept
		got := b.next(t)
		if !bytes.Equal(got.data, data(1, 1452)) || got.ep.DstToString() != "203.0.113.8:51820 via relay-1" {
			t.Errorf("the device got %.20x from %s", got.data, got.ep.DstToString())
		}
		if got.ep.DstIP() != beyond.Addr() || len(got.ep.DstToBytes()) == 0 {
			t.Errorf("for its rate limit the device sees %v, want %v", got.ep.DstIP(), beyond.Addr())
		}
		mustSend(t, b, got.ep, data(2, 48))
		if s := sent.next(t); !bytes.Equal(s.data, data(2, 48)) || s.to != beyond {
			t.Errorf("answer: got %.20x to %v, want data to %v", s.data, s.to, beyond)
		}
		again, err := b.ParseEndpoint(got.ep.DstToString())
		if err != nil {
			t.Fatal(err)
		}
		mustSend(t, b, again, data(3, 48))
		sent.next(t)

		deliver(stunRequest(), beyond)
		if s := stun.next(t); !bytes.Equal(s.data, stunRequest()) || s.from != path {
			t.Errorf("OnSTUN: got %x from %v, want the request from %v", s.data, s.from, path)
		}
		if err := b.WriteProbe(stunRequest(), path, SendOptions{TTL: 3, DontFragment: true}); err != nil {
			t.Fatal(err)
		}
		if s := sent.next(t); !bytes.Equal(s.data, stunRequest()) || s.to != beyond {
			t.Errorf("probe: got %x to %v", s.data, s.to)
		}
		for _, junk := range [][]byte{{}, {0x40, 0, 0, 0}, {1, 0, 0, 0}} {
			deliver(junk, beyond)
		}
		if c := b.Counters(); c.Dropped["empty"] != 1 || c.Dropped["channel-data"] != 1 || c.Dropped["wireguard-length"] != 1 || c.Received != 5 {
			t.Errorf("counters: %+v", c)
		}

		remove()
		remove()
		if err := b.Send([][]byte{data(4, 48)}, got.ep); !errors.Is(err, ErrNoRelay) {
			t.Errorf("send over a relay that is gone: got %v, want %v", err, ErrNoRelay)
		}
		deliver(data(5, 48), beyond)
		write(t, plain(t, loopback4), data(6, 48), b.addr())
		if got := b.next(t); !bytes.Equal(got.data, data(6, 48)) {
			t.Errorf("what a removed relay delivered arrived: %.20x", got.data)
		}
	})
}

func TestRelayErrorIsNamed(t *testing.T) {
	b := start(t, New(Options{}))
	broken := errors.New("broken")
	_, remove := b.AddRelay("relay-1", func([][]byte, netip.AddrPort) error { return broken })
	defer remove()
	err := b.WriteTo(stunRequest(), peer.Path{Via: "relay-1", Remote: beyond})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want the relay's error", err)
	}
	if got := b.Counters().SendErrors; got != 1 {
		t.Errorf("send errors: got %d, want 1", got)
	}
}

// The device's batches may contain old data. The remains in a slot must never be taken for
// another datagram.
func TestRelayedDatagramsFillTheBatchInOrder(t *testing.T) {
	b := New(Options{})
	fns, _, err := b.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	receive := fns[len(fns)-1]
	deliver, remove := b.AddRelay("relay-1", func([][]byte, netip.AddrPort) error { return nil })
	defer remove()
	packets, sizes, eps := make([][]byte, 4), make([]int, 4), make([]conn.Endpoint, 4)
	for i := range packets {
		packets[i] = bytes.Repeat([]byte{0xee}, 2000)
		sizes[i] = 2000
	}
	from := func(i int) netip.AddrPort { return netip.AddrPortFrom(beyond.Addr(), uint16(i+1)) }
	for i := range 6 {
		deliver(data(uint64(i), 100-i), from(i))
	}
	next := 0
	for _, want := range []int{4, 2} {
		n, err := receive(packets, sizes, eps)
		if err != nil || n != want {
			t.Fatalf("got %d datagrams, %v, want %d", n, err, want)
		}
		for i := range n {
			if got := packets[i][:sizes[i]]; !bytes.Equal(got, data(uint64(next), 100-next)) || pathOf(eps[i]).Remote != from(next) {
				t.Errorf("datagram %d: got %d bytes %.20x from %v", next, len(got), got, eps[i].DstToString())
			}
			next++
		}
	}
	ended := newQueue[error]()
	go func() {
		_, err := receive(packets, sizes, eps)
		ended.put(err)
	}()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ended.next(t); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after close: got %v, want net.ErrClosed", err)
	}
	for _, fn := range fns[:len(fns)-1] {
		if _, err := fn(packets, sizes, eps); !errors.Is(err, net.ErrClosed) {
			t.Errorf("socket after close: got %v, want net.ErrClosed", err)
		}
	}
}

func TestRelayedDatagramsBeyondTheQueueAreDroppedAndCounted(t *testing.T) {
	b := New(Options{}) // nobody reads it
	deliver, remove := b.AddRelay("relay-1", func([][]byte, netip.AddrPort) error { return nil })
	defer remove()
	for range relayQueue + 7 {
		deliver(data(1, 48), beyond)
	}
	if got := b.Counters().Dropped["relay-queue"]; got != 7 {
		t.Errorf("dropped: got %d, want 7", got)
	}
}

func TestManagedPeerLearnsARelayAndForgetsItWithTheRelay(t *testing.T) {
	b, x, done := managed(t, New)
	sent, c := newQueue[relayedPacket](), plain(t, loopback4)
	deliver, remove := b.AddRelay("relay-1", func(ps [][]byte, to netip.AddrPort) error {
		for _, p := range ps {
			sent.put(relayedPacket{bytes.Clone(p), to})
		}
		return nil
	})
	path := peer.Path{Via: "relay-1", Remote: beyond}
	b.SetCandidates("x", []peer.Path{peer.Direct(localAddr(c)), path})
	mustSend(t, b, x, initiation(5))
	expect(t, c, "direct candidate", initiation(5))
	if s := sent.next(t); !bytes.Equal(s.data, initiation(5)) || s.to != beyond {
		t.Errorf("over the relay: got %.20x to %v, want the initiation to %v", s.data, s.to, beyond)
	}
	deliver(responseOf(77, 5), beyond)
	b.next(t)
	mustSend(t, b, x, sessionData(77))
	if s := sent.next(t); !bytes.Equal(s.data, sessionData(77)) {
		t.Errorf("over the relay: got %.20x, want data", s.data)
	}
	if got := done.next(t); got.path != path {
		t.Errorf("handshake over %v, want %v", got.path, path)
	}
	remove()
	mustSend(t, b, x, data(1, 48))
	expect(t, c, "without the relay", data(1, 48))
}

func TestCopyOverARelayGetsItsAnswerThere(t *testing.T) {
	b, x, _ := managed(t, New)
	sent, c := newQueue[relayedPacket](), plain(t, loopback4)
	deliver, remove := b.AddRelay("relay-1", func(ps [][]byte, to netip.AddrPort) error {
		for _, p := range ps {
			sent.put(relayedPacket{bytes.Clone(p), to})
		}
		return nil
	})
	defer remove()
	stranger := netip.MustParseAddrPort("203.0.113.66:6")
	b.SetCandidates("x", []peer.Path{{Via: "relay-1", Remote: beyond}})
	write(t, c, initiation(5), b.addr())
	b.next(t)
	mustSend(t, b, x, responseOf(77, 5))
	expect(t, c, "first copy", responseOf(77, 5))
	for _, from := range []netip.AddrPort{stranger, beyond} {
		b.again(t, func() { deliver(initiation(5), from) })
	}
	if s := sent.next(t); !bytes.Equal(s.data, responseOf(77, 5)) || s.to != beyond {
		t.Errorf("over the relay: got %.20x to %v, want the response to %v", s.data, s.to, beyond)
	}
	sent.nothing(t)
}

func TestServersGetTheirMessagesFirst(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		stun := newQueue[[]byte]()
		b := start(t, make(Options{OnSTUN: func(p []byte, _ peer.Path) { stun.put(bytes.Clone(p)) }}))
		turn, other := plain(t, loopback4), plain(t, loopback4)
		channel := []byte{0x40, 1, 0, 4, 1, 2, 3, 4}
		mine, taken := stunRequest(), newQueue[string]()
		mine[19] = 1
		handler := func(name string, want ...[]byte) func([]byte) bool {
			return func(p []byte) bool {
				for _, w := range want {
					if bytes.Equal(p, w) {
						taken.put(fmt.Sprintf("%s %x", name, p[:2]))
						return true
					}
				}
				return false
			}
		}
		mapped := netip.AddrPortFrom(netip.AddrFrom16(loopback4.As16()), localAddr(turn).Port())
		remove := b.AddServer(mapped, handler("first", channel))
		removeSecond := b.AddServer(localAddr(turn), handler("second", channel, mine))

		write(t, turn, channel, b.addr())
		write(t, turn, mine, b.addr())
		for _, want := range []string{"first 4001", "second 0001"} {
			if got := taken.next(t); got != want {
				t.Errorf("taken: got %q, want %q", got, want)
			}
		}
		write(t, turn, []byte{0x7f, 9, 9, 9}, b.addr()) // nobody's
		write(t, other, channel, b.addr())              // from another address
		write(t, turn, stunRequest(), b.addr())         // not the server's
		if got := stun.next(t); !bytes.Equal(got, stunRequest()) {
			t.Errorf("OnSTUN: got %x, want what no server took", got)
		}
		remove()
		remove()
		write(t, turn, channel, b.addr())
		if got := taken.next(t); got != "second 4001" {
			t.Errorf("after removal: got %q, want the second", got)
		}
		removeSecond()
		write(t, turn, mine, b.addr())
		if got := stun.next(t); !bytes.Equal(got, mine) {
			t.Errorf("OnSTUN after removal: got %x, want what came", got)
		}
		write(t, turn, data(1, 32), b.addr()) // WireGuard never belongs to a server
		b.next(t)
		if c := b.Counters(); c.Server != 3 || c.Dropped["channel-data"] < 1 || c.STUN != 2 {
			t.Errorf("got %d taken, %d dropped, %d STUN; want 3, 2, 2", c.Server, c.Dropped["channel-data"], c.STUN)
		}
		taken.nothing(t)
	})
}
