package underlay

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestWireGuardReachesTheDevice(t *testing.T) {
	for _, k := range kinds {
		for _, from := range []netip.Addr{loopback4, loopback6} {
			if from.Is6() && !k.ipv6 {
				continue
			}
			t.Run(k.name+"/"+from.String(), func(t *testing.T) {
				b, c := start(t, k.make(Options{})), plain(t, from)
				for i, want := range [][]byte{initiation(1), response(2), data(3, minSizeData), data(4, 1452), data(5, 65000)} {
					write(t, c, want, netip.AddrPortFrom(from, b.port))
					got := b.next(t)
					if !bytes.Equal(got.data, want) {
						t.Errorf("datagram %d: got %d bytes %.20x…, want %d bytes %.20x…", i, len(got.data), got.data, len(want), want)
					}
					if addr := addrOf(got.ep); addr != localAddr(c) || got.ep.DstToString() != localAddr(c).String() {
						t.Errorf("datagram %d: endpoint %v (%s), want %v", i, addr, got.ep.DstToString(), localAddr(c))
					}
				}
			})
		}
	}
}

func TestEverythingElseIsDroppedAndCounted(t *testing.T) {
	type message struct {
		data []byte
		from peer.Path
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			stun := newQueue[message]()
			b := start(t, k.make(Options{OnSTUN: func(p []byte, from peer.Path) {
				stun.put(message{bytes.Clone(p), from})
			}}))
			c := plain(t, loopback4)
			junk := [][]byte{{1, 0, 0, 0}, initiation(1)[:147], append(stunRequest(), 0), {0x40, 0, 0, 0}, {0xff, 1, 2}}
			want := map[string]uint64{
				"stun": 0, "empty": 0, "wireguard-length": 2, "stun-length": 1, "channel-data": 1, "unknown": 1, "relay-queue": 0,
				"handshake-mac": 0, "handshake-unasked": 0, "handshake-cookie": 0, "handshake-rate": 0, "handshake-copy": 0,
			}
			if k.empty {
				junk = append(junk, []byte{})
				want["empty"] = 1
			}
			for _, p := range junk {
				write(t, c, p, b.addr())
			}
			write(t, c, stunRequest(), b.addr())
			if got := stun.next(t); !bytes.Equal(got.data, stunRequest()) || got.from != peer.Direct(localAddr(c)) {
				t.Errorf("OnSTUN: got %x from %v, want the request from %v", got.data, got.from, localAddr(c))
			}
			write(t, c, data(1, 32), b.addr())
			if got := b.next(t); !bytes.Equal(got.data, data(1, 32)) {
				t.Errorf("the device got %x, want only the WireGuard message", got.data)
			}
			counters := b.Counters()
			if diff := cmp.Diff(want, counters.Dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			if all := uint64(len(junk) + 2); counters.STUN != 1 || counters.Received != all {
				t.Errorf("got %d STUN of %d received, want 1 of %d", counters.STUN, counters.Received, all)
			}
			expectSilence(t, c)
		})
	}
}

func TestSTUNIsDroppedWhenNobodyWantsIt(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b, c := start(t, make(Options{})), plain(t, loopback4)
		write(t, c, stunRequest(), b.addr())
		write(t, c, data(1, 32), b.addr())
		if got := b.next(t); got.data[0] != typeData {
			t.Errorf("the device got %x", got.data)
		}
		if got := b.Counters().Dropped["stun"]; got != 1 {
			t.Errorf("dropped as stun: got %d, want 1", got)
		}
	})
}

func TestSendKeepsOrderAndContent(t *testing.T) {
	for _, k := range kinds {
		for _, to := range []netip.Addr{loopback4, loopback6} {
			if to.Is6() && !k.ipv6 {
				continue
			}
			t.Run(k.name+"/"+to.String(), func(t *testing.T) {
				b, c := start(t, k.make(Options{})), plain(t, to)
				// Runs of equal size, broken by every kind of change, and more datagrams than any
				// single call takes.
				var want [][]byte
				for i, size := range []int{1452, 1452, 1452, 100, 1452, 32, 32, 1452, 9000, 1452, 1300, 1300} {
					want = append(want, data(uint64(i), size))
				}
				for i := range 300 {
					want = append(want, data(uint64(i), 1200))
				}
				ep, err := b.ParseEndpoint(localAddr(c).String())
				if err != nil {
					t.Fatal(err)
				}
				sent := make([][]byte, len(want))
				for i := range want { // the std bind appends to the first of a run
					sent[i] = append(make([]byte, 0, 1<<16), want[i]...)
				}
				if err := b.Send(sent, ep); err != nil {
					t.Fatalf("send: %v", err)
				}
				for i := range want {
					got, from := read(t, c)
					if !bytes.Equal(got, want[i]) {
						t.Fatalf("datagram %d: got %d bytes, want %d bytes (or other content)", i, len(got), len(want[i]))
					}
					if from != netip.AddrPortFrom(to, b.port) {
						t.Fatalf("datagram %d came from %v, want %v:%d", i, from, to, b.port)
					}
				}
				if got := b.Counters().Sent; got != uint64(len(want)) {
					t.Errorf("sent: got %d, want %d", got, len(want))
				}
			})
		}
	}
}

func TestBulkBetweenTwoBinds(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		a, b := start(t, make(Options{})), start(t, make(Options{}))
		to, err := a.ParseEndpoint(b.addr().String())
		if err != nil {
			t.Fatal(err)
		}
		const rounds, batch = 200, 40 // 58 KB per round, less than any socket buffer
		n := uint64(0)
		for range rounds {
			var bufs [][]byte
			for range batch {
				bufs = append(bufs, data(n, 1452))
				n++
			}
			if err := a.Send(bufs, to); err != nil {
				t.Fatal(err)
			}
			for i := range batch {
				if got, want := b.next(t).data, data(n-batch+uint64(i), 1452); !bytes.Equal(got, want) {
					t.Fatalf("datagram %d arrived as %.20x…", n-batch+uint64(i), got)
				}
			}
		}
	})
}

func TestWriteToUsesTheSharedPort(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		bind := make(Options{})
		if err := bind.WriteTo(stunRequest(), peer.Direct(netip.AddrPortFrom(loopback4, 1))); !errors.Is(err, net.ErrClosed) {
			t.Errorf("before Open: got %v, want net.ErrClosed", err)
		}
		b, c := start(t, bind), plain(t, loopback4)
		if b.Port() != b.port {
			t.Errorf("Port: got %d, want %d", b.Port(), b.port)
		}
		// An IPv4-mapped address counts as IPv4.
		mapped := netip.AddrPortFrom(netip.AddrFrom16(loopback4.As16()), localAddr(c).Port())
		if err := b.WriteTo(stunRequest(), peer.Path{Remote: mapped}); err != nil {
			t.Fatal(err)
		}
		if got, from := read(t, c); !bytes.Equal(got, stunRequest()) || from != b.addr() {
			t.Errorf("got %x from %v, want the request from %v", got, from, b.addr())
		}
	})
}

func TestCloseEndsReceivingAndOpenStartsItAgain(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b := make(Options{})
		if err := b.Close(); err != nil {
			t.Errorf("close before open: %v", err)
		}
		for range 3 {
			fns, port, err := b.Open(0)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.Open(0); !errors.Is(err, conn.ErrBindAlreadyOpen) {
				t.Errorf("second open: got %v, want %v", err, conn.ErrBindAlreadyOpen)
			}
			if _, _, err := make(Options{}).Open(port); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("open of a taken port: got %v, want %v", err, syscall.EADDRINUSE)
			}
			ended := newQueue[error]()
			for _, fn := range fns {
				go func() {
					_, err := fn([][]byte{{}}, []int{0}, []conn.Endpoint{nil})
					ended.put(err)
				}()
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			for range fns {
				if err := ended.next(t); !errors.Is(err, net.ErrClosed) {
					t.Errorf("receive after close: got %v, want net.ErrClosed", err)
				}
			}
			ep, err := b.ParseEndpoint("127.0.0.1:1")
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Send([][]byte{{1}}, ep); err == nil {
				t.Error("send after close: got no error")
			}
			if b.Port() != 0 {
				t.Errorf("port after close: got %d, want 0", b.Port())
			}
			// The same port is available again at once.
			if _, again, err := b.Open(port); err != nil || again != port {
				t.Errorf("reopen %d: got %d, %v", port, again, err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestUnreachablePortDoesNotEndReceiving(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b := start(t, make(Options{}))
		gone := plain(t, loopback4)
		dead := localAddr(gone)
		gone.Close()
		for range 20 {
			// Whether an error occurs here depends on the system. It must not matter.
			_ = b.WriteTo(data(1, 32), peer.Direct(dead))
		}
		c := plain(t, loopback4)
		write(t, c, data(2, 32), b.addr())
		if got := b.next(t); !bytes.Equal(got.data, data(2, 32)) {
			t.Errorf("got %x", got.data)
		}
	})
}

func TestAnswersComeFromTheAddressThatWasSpokenTo(t *testing.T) {
	for _, k := range kinds {
		if !k.sticky {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			b, c := start(t, k.make(Options{})), plain(t, loopback4)
			for _, host := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.2"} {
				spokenTo := netip.AddrPortFrom(netip.MustParseAddr(host), b.port)
				write(t, c, data(1, 32), spokenTo)
				ep := b.next(t).ep
				if ep.SrcIP() != spokenTo.Addr() {
					t.Errorf("source: got %v, want %v", ep.SrcIP(), spokenTo.Addr())
				}
				send(t, b, ep)
				if _, from := read(t, c); from != spokenTo {
					t.Errorf("answer came from %v, want %v", from, spokenTo)
				}
				ep.ClearSrc()
				if ep.SrcIP().IsValid() {
					t.Errorf("source after ClearSrc: got %v, want none", ep.SrcIP())
				}
				send(t, b, ep)
				if _, from := read(t, c); from != b.addr() {
					t.Errorf("answer after ClearSrc came from %v, want the kernel's choice %v", from, b.addr())
				}
			}
		})
	}
}

func send(t *testing.T, b *running, ep conn.Endpoint) {
	t.Helper()
	if err := b.Send([][]byte{data(9, 48)}, ep); err != nil {
		t.Fatal(err)
	}
}

func TestParseEndpointRefusesWhatIsNone(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b := make(Options{})
		for _, s := range []string{"", "example.org:1", "127.0.0.1", "peer:nobody"} {
			if ep, err := b.ParseEndpoint(s); err == nil {
				t.Errorf("ParseEndpoint(%q) = %v, want an error", s, ep)
			}
		}
	})
}

// queue passes values from callbacks to the test.
type queue[T any] chan T

func newQueue[T any]() queue[T] { return make(queue[T], 1024) }

func (q queue[T]) put(v T) { q <- v }

func (q queue[T]) next(t *testing.T) T {
	t.Helper()
	select {
	case v := <-q:
		return v
	case <-time.After(patience.Left()):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
