//go:build linux && e2e

package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/testenv/netlab"
)

// kernelConnections is how many connections TestKernelTCP makes unless POSTERN_CONNECTIONS is set
// (make test-interop: a million).
const kernelConnections = 2000

// wireFaults are the faults of a wire, each way.
type wireFaults struct {
	delay                    time.Duration
	loss, reorder, duplicate float64 // shares of packets
}

// carry moves packets from one device to the other until the first is closed.
func carry(from, to tun.Device, f wireFaults, seed uint64) {
	const offset = 16 // room for WireGuard's header, or the kernel's for offloads
	type packet struct {
		at   time.Time
		data []byte
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	wire := make(chan packet, 100_000)
	var wg sync.WaitGroup
	wg.Go(func() {
		for p := range wire {
			time.Sleep(time.Until(p.at)) // this is the delay
			_, _ = to.Write([][]byte{p.data}, offset)
		}
	})
	defer wg.Wait()
	defer close(wire)
	bufs := make([][]byte, from.BatchSize())
	for i := range bufs {
		bufs[i] = make([]byte, offset+65535)
	}
	sizes := make([]int, len(bufs))
	var late []packet
	for {
		n, err := from.Read(bufs, sizes, offset)
		if err != nil && !errors.Is(err, tun.ErrTooManySegments) {
			return
		}
		for i := range n {
			p := packet{time.Now().Add(f.delay), slices.Clone(bufs[i][:offset+sizes[i]])}
			switch draw := rng.Float64(); {
			case draw < f.loss:
				continue
			case draw < f.loss+f.reorder:
				late = append(late, p) // after the next one
				continue
			case draw < f.loss+f.reorder+f.duplicate:
				wire <- packet{p.at, slices.Clone(p.data)} // the kernel's device writes into what it gets
			}
			wire <- p
			for _, l := range late {
				wire <- l
			}
			late = late[:0]
		}
	}
}

// longDevice gives a host an interface whose packets the test carries. The test closes it.
func longDevice(t *testing.T, host *netlab.Host, addr netip.Prefix, mtu int) (device tun.Device) {
	t.Helper()
	if err := netlab.Do(host.Namespace(), func() (err error) {
		device, err = tun.CreateTUN("long0", mtu)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	add := []string{"ip", "address", "add", addr.String(), "dev", "long0"}
	if addr.Addr().Is6() {
		add = append(add, "nodad")
	}
	for _, args := range [][]string{add, {"ip", "link", "set", "long0", "up"}} {
		if out, err := host.Run(within(t, patience), args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return device
}

// stalls records when the machine last kept the test from running for a second or longer. The
// kernel's timers continue meanwhile: it doubles the time to its next retransmission, forgets
// half-open connections, and deadlines pass. The same is true of ours.
type stalls struct {
	mu   sync.Mutex
	tick time.Time // when the test last ran
	last time.Time // when a stall ended
}

const stall = time.Second

// watch checks the clock until ctx ends.
func (s *stalls) watch(ctx context.Context) {
	ticker := time.NewTicker(stall / 10)
	defer ticker.Stop()
	for ctx.Err() == nil {
		s.look()
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (s *stalls) look() (last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.tick.IsZero() && now.Sub(s.tick) >= stall {
		s.last = now
	}
	s.tick = now
	return s.last
}

// excuse reports whether a connection may have failed because the machine stalled: it ended by a
// deadline or a reset, and there was a stall since it began. Nothing excuses wrong bytes.
func (s *stalls) excuse(err error, began time.Time) bool {
	ended := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	return ended && s.look().After(began)
}

// exchange sends so many bytes and a half-close, and reads what the other side sends until its
// half-close.
func exchange(c net.Conn, sends int, seed byte) (received int, err error) {
	type halfCloser interface{ CloseWrite() error }
	sent := make(chan error, 1)
	go func() {
		b := make([]byte, sends)
		for i := range b {
			b[i] = sequence(uint64(i)) ^ seed
		}
		_, err := c.Write(b)
		if err == nil {
			err = c.(halfCloser).CloseWrite()
		}
		sent <- err
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		for i, b := range buf[:n] {
			if b != sequence(uint64(received+i))^seed {
				return received, fmt.Errorf("byte %d is wrong", received+i)
			}
		}
		received += n
		if errors.Is(err, io.EOF) {
			return received, <-sent
		}
		if err != nil {
			return received, fmt.Errorf("after %d bytes: %w", received, err)
		}
	}
}

// The network stack and the kernel's TCP exchange data over a path with delay, loss, reordering
// and duplicates. Every byte is correct, whichever side dials, and nothing is left afterwards.
func TestKernelTCP(t *testing.T) {
	// The kernel keeps each local port of a destination for a minute after a connection, so
	// there are several destinations.
	const port, ports = 7000, 8
	own, kernels := netip.MustParseAddr("fd00:0:0:7::1"), netip.MustParseAddr("fd00:0:0:7::2")
	lab := netlab.New(t)
	host := lab.Host("kernel")
	device := longDevice(t, host, netip.PrefixFrom(kernels, 64), netstack.DefaultMTU)
	stack, err := netstack.New(netstack.Options{Addresses: []netip.Addr{own}})
	if err != nil {
		t.Fatal(err)
	}
	faults := wireFaults{delay: 5 * time.Millisecond, loss: 0.01, reorder: 0.01, duplicate: 0.005}
	var wires sync.WaitGroup
	wires.Go(func() { carry(stack.Device(), device, faults, 1) })
	wires.Go(func() { carry(device, stack.Device(), faults, 2) })
	defer wires.Wait()
	defer device.Close()
	defer stack.Close()

	connections := kernelConnections
	if s := os.Getenv("POSTERN_CONNECTIONS"); s != "" {
		if connections, err = strconv.Atoi(s); err != nil {
			t.Fatalf("POSTERN_CONNECTIONS=%s: %v", s, err)
		}
	}
	var listeners []net.Listener
	for i := range uint16(ports) {
		ours, err := stack.Listen(netip.AddrPortFrom(own, port+i))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := host.Listen(t.Context(), netip.AddrPortFrom(kernels, port+i))
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, ours, theirs)
	}
	var servers sync.WaitGroup
	defer servers.Wait()
	var machine stalls
	var excused atomic.Int64
	go machine.watch(t.Context())
	failed := func(err error, began time.Time, format string, args ...any) {
		if machine.excuse(err, began) {
			excused.Add(1)
			return
		}
		t.Errorf(format+": %v", append(args, err)...)
	}
	for _, l := range listeners {
		defer l.Close()
		servers.Go(func() { serveExchanges(l, &servers, failed) })
	}
	eventually(within(t, patience), t, "the device is up", func() (bool, string) {
		c, err := dialEither(t.Context(), host, stack, true, netip.AddrPortFrom(own, port))
		if err != nil {
			return false, err.Error()
		}
		return true, fmt.Sprint(c.Close())
	})

	goroutines := runtime.NumGoroutine()
	var wg sync.WaitGroup
	tickets := make(chan int)
	// Most wait most of the time, for a round trip or a retransmission.
	for worker := range 128 {
		wg.Go(func() {
			for i := range tickets {
				rng := rand.New(rand.NewPCG(uint64(i), 9))
				to := netip.AddrPortFrom(kernels, port+uint16(i/2%ports))
				if i%2 == 0 {
					to = netip.AddrPortFrom(own, to.Port())
				}
				began := time.Now()
				if err := oneExchange(t.Context(), host, stack, i%2 == 0, to, size(rng), size(rng), byte(i)); err != nil {
					failed(err, began, "connection %d, worker %d, to %v", i, worker, to)
				}
			}
		})
	}
	for i := range connections {
		tickets <- i
	}
	close(tickets)
	wg.Wait()
	state, ok := stack.PathState(kernels)
	if !ok || state.Lost == 0 || state.BaseRTT < faults.delay {
		t.Errorf("the path's state is %+v, %v: it was not used", state, ok)
	}
	eventually(within(t, patience), t, "nothing is left of the connections", func() (bool, string) {
		state, _ := stack.PathState(kernels)
		memory, running := stack.Stats().TCPMemory, runtime.NumGoroutine()
		return state.Connections == 0 && memory == 0 && running <= goroutines,
			fmt.Sprintf("%d connections, %d bytes, %d goroutines, and %d at first", state.Connections, memory, running, goroutines)
	})
	t.Logf("%d connections, of which %d ended while the machine stalled, %d packets lost, %+v", connections, excused.Load(), state.Lost, state)
	if n := int(excused.Load()); n > connections/10 {
		t.Errorf("%d of %d connections ended while the machine stalled: this shows little", n, connections)
	}
}

// size returns a random amount to send: often little, sometimes a lot.
func size(rng *rand.Rand) int {
	switch n := rng.IntN(256); {
	case n < 32:
		return 0
	case n == 32:
		return rng.IntN(1 << 20)
	default:
		return rng.IntN(20_000)
	}
}

// serveExchanges answers with as many bytes as the first eight bytes request.
func serveExchanges(l net.Listener, servers *sync.WaitGroup, failed func(error, time.Time, string, ...any)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		servers.Go(func() {
			defer c.Close()
			began := time.Now()
			_ = c.SetDeadline(began.Add(slow() * patience))
			var head [9]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return // the first connection only probes
			}
			if _, err := exchange(c, int(binary.BigEndian.Uint64(head[:8])), head[8]); err != nil {
				failed(err, began, "%v serves %v", c.LocalAddr(), c.RemoteAddr())
			}
		})
	}
}

func oneExchange(ctx context.Context, host *netlab.Host, stack *netstack.Stack, kernelDials bool, to netip.AddrPort, sends, receives int, seed byte) error {
	most := slow() * patience
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	c, err := dialEither(ctx, host, stack, kernelDials, to)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(most))
	if _, err := c.Write(append(binary.BigEndian.AppendUint64(nil, uint64(receives)), seed)); err != nil {
		return err
	}
	got, err := exchange(c, sends, seed)
	if err == nil && got != receives {
		err = fmt.Errorf("received %d bytes, want %d", got, receives)
	}
	return err
}

func dialEither(ctx context.Context, host *netlab.Host, stack *netstack.Stack, kernelDials bool, to netip.AddrPort) (net.Conn, error) {
	if kernelDials {
		return host.DialContext(ctx, "tcp", to.String())
	}
	return stack.DialTCP(ctx, to)
}
