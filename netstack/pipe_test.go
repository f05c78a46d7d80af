package netstack

import (
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/testenv/patience"
)

// below has package sender send the data of every connection, also on short paths.
var below = flag.Bool("below", false, "send the data of all connections by package sender")

// TestMain lets more tests with t.Parallel run together than there are processors: they wait for
// timers.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// The two ends of every test.
var (
	a6 = netip.MustParseAddr("fd00::a")
	b6 = netip.MustParseAddr("fd00::b")
	a4 = netip.MustParseAddr("10.0.0.1")
	b4 = netip.MustParseAddr("10.0.0.2")
)

// families runs a test once for each IP version.
func families(t *testing.T, f func(t *testing.T, a, b netip.Addr)) {
	t.Run("v6", func(t *testing.T) { f(t, a6, b6) })
	t.Run("v4", func(t *testing.T) { f(t, a4, b4) })
}

// impairment is what the pipe does to packets, each way.
type impairment struct {
	seed    uint64
	loss    float64       // probability that a packet is dropped
	reorder float64       // probability that a packet changes places with one up to 8 later
	delay   time.Duration // the least that a packet takes
	largest *atomic.Int64 // larger packets are dropped, in bytes; nil or 0 for none
	// Packets that pass from a to b and back; nil for all. Each is called by one goroutine.
	there, back func(packet []byte) bool
}

// pair is two stacks wired back to back.
type pair struct {
	a, b *Stack
}

// newPair returns two stacks with addresses of both families, and moves batches between their
// devices until the test ends. It fails the test if closing hangs.
func newPair(t testing.TB, oa, ob Options, imp impairment) pair {
	t.Helper()
	oa.Addresses, ob.Addresses = []netip.Addr{a6, a4}, []netip.Addr{b6, b4}
	a, err := New(oa)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(ob)
	if err != nil {
		t.Fatal(err)
	}
	if *below {
		a.long, b.long = 0, 0
	}
	var wg sync.WaitGroup
	wg.Go(func() { pump(t, a.Device(), b.Device(), imp, imp.there, 1) })
	wg.Go(func() { pump(t, b.Device(), a.Device(), imp, imp.back, 2) })
	t.Cleanup(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = a.Close()
			_ = b.Close()
			wg.Wait()
		}()
		select {
		case <-done:
		case <-time.After(patience.Left()):
			t.Error("closing the stacks hangs")
		}
	})
	return pair{a, b}
}

// pump is one direction of the wire: what WireGuard and the network would do.
func pump(t testing.TB, from, to tun.Device, imp impairment, passes func(packet []byte) bool, stream uint64) {
	const offset = 16 // As WireGuard leaves room for its header.
	rng := rand.New(rand.NewPCG(imp.seed, stream))
	bufs := make([][]byte, from.BatchSize())
	for i := range bufs {
		bufs[i] = make([]byte, offset+2048)
	}
	sizes := make([]int, len(bufs))
	out := make([][]byte, 0, len(bufs))
	deliver := func(out [][]byte) {
		if _, err := to.Write(out, offset); err != nil {
			t.Errorf("Write: %v", err)
		}
	}
	if imp.delay > 0 {
		later, stop := delayed(imp.delay, deliver)
		defer stop()
		deliver = later
	}
	for {
		n, err := from.Read(bufs, sizes, offset)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("Read: %v", err)
			}
			return
		}
		out = out[:0]
		for i := range n {
			if imp.largest != nil && imp.largest.Load() > 0 && int64(sizes[i]) > imp.largest.Load() {
				continue
			}
			if passes != nil && !passes(bufs[i][offset:offset+sizes[i]]) {
				continue
			}
			if imp.loss == 0 || rng.Float64() >= imp.loss {
				out = append(out, bufs[i][:offset+sizes[i]])
			}
		}
		if imp.reorder > 0 {
			for i := range out {
				if j := i + 1 + rng.IntN(8); j < len(out) && rng.Float64() < imp.reorder {
					out[i], out[j] = out[j], out[i]
				}
			}
		}
		if len(out) > 0 {
			deliver(out)
		}
	}
}

// later calls deliver with copies after the delay, until stopped.
func delayed(delay time.Duration, deliver func([][]byte)) (later func([][]byte), stop func()) {
	type batch struct {
		at      time.Time
		packets [][]byte
	}
	wire := make(chan batch, 100_000)
	var wg sync.WaitGroup
	wg.Go(func() {
		for b := range wire {
			time.Sleep(time.Until(b.at)) // This is the delay.
			deliver(b.packets)
		}
	})
	later = func(out [][]byte) {
		b := batch{at: time.Now().Add(delay)}
		for _, p := range out {
			b.packets = append(b.packets, slices.Clone(p))
		}
		wire <- b
	}
	return later, func() {
		close(wire)
		wg.Wait()
	}
}

// within returns a context that ends when the test should have.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience.Left())
	t.Cleanup(cancel)
	return ctx
}

// listen opens a listener on b and returns its address.
func (p pair) listen(t testing.TB, at netip.Addr) (net.Listener, netip.AddrPort) {
	t.Helper()
	l, err := p.b.Listen(netip.AddrPortFrom(at, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).AddrPort()
}

// connect returns both ends of a TCP connection from a to b.
func (p pair) connect(t testing.TB, at netip.Addr) (client, server *Conn) {
	t.Helper()
	l, addr := p.listen(t, at)
	client, err := p.a.DialTCP(within(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server = c.(*Conn)
	t.Cleanup(func() { client.Close(); server.Close() })
	deadline := time.Now().Add(patience.Left())
	_ = client.SetDeadline(deadline)
	_ = server.SetDeadline(deadline)
	return client, server
}

// random returns an endless reproducible stream.
func random(seed byte) io.Reader { return rand.NewChaCha8([32]byte{seed}) }
