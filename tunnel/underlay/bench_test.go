package underlay

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

// BenchmarkLoopback moves full-sized datagrams from one Bind to another, as fast as the
// receiver takes them: the sender keeps at most a window in flight, so nothing is lost.
func BenchmarkLoopback(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) { benchmark(b, k.make, false) })
	}
	b.Run("New to a managed peer", func(b *testing.B) { benchmark(b, New, true) })
}

func benchmark(b *testing.B, make func(Options) *Bind, managed bool) {
	const size, batch, window = 1452, 44, 8 // one UDP_SEGMENT call takes 44 × 1452 bytes
	from, to := make(Options{}), make(Options{})
	fromFns, _, err := from.Open(0)
	if err != nil {
		b.Fatal(err)
	}
	toFns, port, err := to.Open(0)
	if err != nil {
		b.Fatal(err)
	}
	ep, err := from.ParseEndpoint(netip.AddrPortFrom(loopback4, port).String())
	if err != nil {
		b.Fatal(err)
	}
	if managed {
		from.Manage("x")
		from.SetSelected("x", pathOf(ep))
		if ep, err = from.ParseEndpoint("peer:x"); err != nil {
			b.Fatal(err)
		}
	}
	credits := newCredits(window)
	var wg sync.WaitGroup
	for _, fn := range fromFns {
		wg.Go(func() { drain(from, fn, func(int) {}) })
	}
	received := 0
	wg.Go(func() {
		drain(to, toFns[0], func(n int) {
			for received += n; received >= batch; received -= batch {
				credits <- struct{}{}
			}
		})
	})
	for _, fn := range toFns[1:] {
		wg.Go(func() { drain(to, fn, func(int) {}) })
	}
	bufs := [][]byte{}
	for i := range batch {
		room := append([]byte(nil), data(uint64(i), 1<<16)...) // the capacity of the device's buffers
		bufs = append(bufs, room[:size])
	}
	b.SetBytes(size * batch)
	b.ReportAllocs()
	for b.Loop() {
		select {
		case <-credits:
		case <-time.After(patience.Left()):
			b.Fatal("datagrams were lost")
		}
		if err := from.Send(bufs, ep); err != nil {
			b.Fatal(err)
		}
	}
	_, _ = from.Close(), to.Close()
	wg.Wait()
}

func newCredits(n int) chan struct{} {
	c := make(chan struct{}, 1024)
	for range n {
		c <- struct{}{}
	}
	return c
}

func drain(on *Bind, fn conn.ReceiveFunc, got func(int)) {
	n := on.BatchSize()
	bufs, sizes, eps := make([][]byte, n), make([]int, n), make([]conn.Endpoint, n)
	for i := range bufs {
		bufs[i] = make([]byte, 1<<16)
	}
	for {
		n, err := fn(bufs, sizes, eps)
		if err != nil {
			return
		}
		got(n)
	}
}

// BenchmarkFlood replays a handshake. Each costs a cookie reply and must not create garbage.
func BenchmarkFlood(b *testing.B) {
	bind := New(Options{})
	if _, _, err := bind.Open(0); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = bind.Close() })
	key, err := peer.NewPrivateKey()
	if err != nil {
		b.Fatal(err)
	}
	if err := bind.SetPublicKey(key.Public()); err != nil {
		b.Fatal(err)
	}
	h := new(handshaker)
	h.Init(device.NoisePublicKey(key.Public()))
	from := bind.inner.endpoint(netip.AddrPortFrom(loopback4, bind.Port()))
	packets, sizes, eps := [][]byte{h.initiation(1)}, []int{0}, []conn.Endpoint{from}
	b.ReportAllocs()
	for b.Loop() {
		sizes[0] = sizeInitiation
		bind.filter(packets, sizes, eps)
	}
}
