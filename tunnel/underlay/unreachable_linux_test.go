package underlay

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

// closedPort is an address on which nothing listens: the loopback interface answers at once with
// an ICMP error.
func closedPort(t *testing.T, on netip.Addr) netip.AddrPort {
	t.Helper()
	c := plain(t, on)
	at := localAddr(c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return at
}

// leanCase is a way in which New receives, and a local address.
type leanCase struct {
	name string
	make func(Options) *Bind
	addr netip.Addr
}

func leanCases() []leanCase {
	return []leanCase{
		{"IPv4", New, loopback4}, {"IPv4, several sockets", newSpread, loopback4},
		{"IPv6", New, loopback6}, {"IPv6, several sockets", newSpread, loopback6},
	}
}

// observe waits until the observations are as expected.
func (r *running) observe(t *testing.T, what string, ok func(Observations) bool) {
	t.Helper()
	for deadline := time.Now().Add(patience.Left()); !ok(r.Observations()); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not show in %+v", what, r.Observations())
		}
	}
}

func TestClosedPortIsObserved(t *testing.T) {
	for _, c := range leanCases() {
		t.Run(c.name, func(t *testing.T) {
			b, at := start(t, c.make(Options{})), closedPort(t, c.addr)
			before := time.Now()
			if err := b.WriteTo(data(1, 32), peer.Direct(at)); err != nil {
				t.Fatal(err)
			}
			b.observe(t, "the closed port", func(o Observations) bool { return len(o.Unreachable) == 1 })
			got := b.Observations().Unreachable[0]
			if got.To != at || got.Reason != "port unreachable" || got.Here || got.By != c.addr || got.At.Before(before) {
				t.Errorf("got %+v, want that %v is a port unreachable, as it says itself", got, at)
			}
			if errs := b.Counters().ReceiveErrors; errs != 0 {
				t.Errorf("got %d receive errors, want none", errs)
			}
		})
	}
}

// The kernel reports an ICMP error on the next call on the socket, whatever that call is for.
// That call's datagrams must not be lost.
func TestICMPErrorsDisturbNothing(t *testing.T) {
	for _, c := range leanCases() {
		t.Run(c.name, func(t *testing.T) {
			const batches, batch = 200, 8
			a, b, at := start(t, c.make(Options{})), start(t, c.make(Options{})), closedPort(t, c.addr)
			toA, toB := a.inner.endpoint(netip.AddrPortFrom(c.addr, a.port)), a.inner.endpoint(netip.AddrPortFrom(c.addr, b.port))
			stop := make(chan struct{})
			var errors sync.WaitGroup
			for range 2 {
				errors.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							_ = a.WriteTo(data(0, 32), peer.Direct(at))
						}
					}
				})
			}
			for i := range batches {
				var bufs [][]byte
				for j := range batch {
					bufs = append(bufs, data(uint64(i*batch+j), 1200))
				}
				if err := a.Send(bufs, toB); err != nil {
					t.Errorf("send batch %d: %v", i, err)
				}
				if err := b.Send(bufs, toA); err != nil {
					t.Errorf("receive batch %d: %v", i, err)
				}
				for range batch {
					a.next(t)
					b.next(t)
				}
			}
			close(stop)
			errors.Wait()
			if a.Observations().Unreachable[0].To != at {
				t.Error("the ICMP errors were not observed")
			}
		})
	}
}

// Go's poller considers a socket broken that has an ICMP error and neither datagrams nor room to
// send, as on a slow link with a full queue.
func TestReceivingWithoutThePoller(t *testing.T) {
	b := New(Options{})
	_, port, err := b.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newReceiver(leanOf(b).v4.Load())
	r.packets, r.sizes, r.eps = [][]byte{make([]byte, 1<<16)}, make([]int, 1), make([]conn.Endpoint, 1)
	poll := func(came func() bool) { // a busy kernel delivers later
		t.Helper()
		for deadline := time.Now().Add(patience.Left()); ; runtime.Gosched() {
			if err := r.s.raw.Control(r.readUnpolled); err != nil {
				t.Fatal(err)
			}
			if r.n > 0 || r.errno != 0 || came() || time.Now().After(deadline) {
				return
			}
		}
	}
	observed := func() bool { return len(b.Observations().Unreachable) > 0 }
	at, c := closedPort(t, loopback4), plain(t, loopback4)
	if err := b.WriteTo(data(1, 32), peer.Direct(at)); err != nil {
		t.Fatal(err)
	}
	if poll(observed); r.n != 0 || r.errno != 0 || len(b.Observations().Unreachable) != 1 {
		t.Errorf("got %d datagrams, %v and %+v, want just the error", r.n, r.errno, b.Observations().Unreachable)
	}
	write(t, c, data(1, 100), netip.AddrPortFrom(loopback4, port))
	if poll(func() bool { return false }); r.n != 1 || r.sizes[0] != 100 || r.errno != 0 {
		t.Errorf("got %d datagrams of %d bytes, %v, want one of 100", r.n, r.sizes[0], r.errno)
	}
}

// Close waits for all users of the socket, with or without errors.
func TestClosingWhileICMPErrorsCome(t *testing.T) {
	at := closedPort(t, loopback4)
	for i := range 20 {
		b := leanCases()[i%2].make(Options{})
		fns, _, err := b.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		b.SetCandidates("cloud", direct(at))
		var users sync.WaitGroup
		for _, fn := range fns {
			users.Go(func() { drain(b, fn, func(int) {}) })
		}
		first := make(chan struct{})
		users.Go(func() {
			for i := 0; b.WriteTo(data(1, 32), peer.Direct(at)) == nil; i++ {
				if i == 20 {
					close(first)
				}
			}
		})
		<-first
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		users.Wait()
	}
}

// Close waits for all users of the socket, and one may be noting an ICMP error. Noting and
// reading observations may wait for Close, which holds the lock of the peers' paths.
func TestClosingWhileErrorsAndHandshakesAreNoted(t *testing.T) {
	from := peer.Direct(known)
	for name, observe := range map[string]func(*Bind){
		"reading":       func(b *Bind) { b.Observations() },
		"an initiation": func(b *Bind) { b.observed.initiationCame(initiation(1), from, true, false, begin) },
		"a response":    func(b *Bind) { b.observed.responseCame(response(1), from, "", time.Time{}, begin) },
	} {
		t.Run(name, func(t *testing.T) {
			b, asked := New(Options{}), make(chan struct{})
			allPaths := b.paths.all
			b.paths.all = func() map[peer.Path]struct{} {
				close(asked)
				return allPaths()
			}
			if _, _, err := b.Open(0); err != nil {
				t.Fatal(err)
			}
			s := leanOf(b).v4.Load()
			using, proceed := make(chan struct{}), make(chan struct{})
			ended := make(chan error, 3)
			go func() {
				ended <- s.raw.Control(func(uintptr) {
					close(using)
					<-proceed
					s.onError(known, icmpError{reason: portUnreachable})
				})
			}()
			<-using
			go func() { ended <- b.Close() }()
			for b.Port() != 0 { // from then on it holds the lock until the socket is free
				runtime.Gosched()
			}
			go func() {
				observe(b)
				ended <- nil
			}()
			<-asked
			close(proceed)
			for n := range cap(ended) {
				select {
				case err := <-ended:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(patience.Left()):
					t.Fatalf("%d of %d went on: the others wait for each other", n, cap(ended))
				}
			}
		})
	}
}

// Whoever gets the errno empties the queue: unread errors would fill the receive buffer.
func TestErrorQueueIsEmptied(t *testing.T) {
	for _, c := range leanCases()[:2] {
		t.Run(c.name, func(t *testing.T) {
			b, at := start(t, c.make(Options{})), closedPort(t, c.addr)
			for range 1000 {
				if err := b.WriteTo(data(1, 1452), peer.Direct(at)); err != nil {
					t.Fatal(err)
				}
			}
			b.observe(t, "an empty queue", func(Observations) bool {
				m, err := leanOf(b.Bind).v4.Load().memory()
				if err != nil {
					t.Fatal(err)
				}
				return m.queued == 0
			})
		})
	}
}

func TestOwnErrorsAreReported(t *testing.T) {
	bind := New(Options{})
	b, c := start(t, bind), plain(t, loopback4)
	send, to := leanOf(bind).sendmsg, localAddr(c)
	for _, e := range []struct {
		errno  unix.Errno
		reason string
	}{
		{unix.EHOSTUNREACH, hostUnreachable}, {unix.EACCES, prohibited}, {unix.EMSGSIZE, ""}, {unix.EPERM, prohibited},
		{unix.ENETUNREACH, networkUnreachable}, {unix.EINVAL, networkUnreachable},
	} {
		leanOf(bind).sendmsg = func(uintptr, *unix.Msghdr) unix.Errno { return e.errno }
		if err := b.WriteTo(data(1, 32), peer.Direct(to)); err == nil {
			t.Errorf("%v was taken for somebody else's error", e.errno)
		}
		var want []Unreachable
		if e.reason != "" {
			want = []Unreachable{{To: to, Here: true, Reason: e.reason}}
		}
		got := b.Unreachable()
		for i := range got {
			got[i].At = time.Time{}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: got %+v, want %+v", e.errno, got, want)
		}
		leanOf(bind).sendmsg = send
		if err := b.WriteTo(data(1, 32), peer.Direct(to)); err != nil {
			t.Error(err)
		}
		if got := b.Unreachable(); len(got) != 0 {
			t.Errorf("%v: a probe has left, and it is still told that none does: %+v", e.errno, got)
		}
	}
	// With IP_RECVERR the kernel reports a full queue on the way out, which is a loss like any
	// other.
	leanOf(bind).sendmsg = func(uintptr, *unix.Msghdr) unix.Errno { return unix.ENOBUFS }
	if err := b.WriteTo(data(1, 32), peer.Direct(localAddr(c))); err != nil {
		t.Errorf("a full queue: got %v, want no error", err)
	}
}

func TestSocketBuffersAndDropsAreTold(t *testing.T) {
	const size = 64 << 10
	bind := New(Options{ReceiveBuffer: size, SendBuffer: 2 * size})
	if o := bind.Observations(); o.ReceiveBuffer != 0 || o.SendBuffer != 0 || o.SocketDrops != 0 {
		t.Errorf("before it is open: got %+v, want nothing", o)
	}
	_, port, err := bind.Open(0) // nobody reads
	if err != nil {
		t.Fatal(err)
	}
	o := bind.Observations()
	if o.ReceiveBuffer != size || o.SendBuffer != 2*size || o.SocketDrops != 0 {
		t.Errorf("got %d and %d bytes and %d drops, want %d, %d and none", o.ReceiveBuffer, o.SendBuffer, o.SocketDrops, size, 2*size)
	}
	overflow(t, bind, port, func(i int) []byte { return data(uint64(i), 1452) })
}

// overflow sends more than the sockets hold, which nobody reads, and closes them. Their drops are
// still counted.
func overflow(t *testing.T, bind *Bind, port uint16, datagram func(i int) []byte) {
	t.Helper()
	const sent = 300
	c := plain(t, loopback4)
	for i := range sent {
		write(t, c, datagram(i), netip.AddrPortFrom(loopback4, port))
	}
	dropped := bind.Observations().SocketDrops
	if dropped == 0 || dropped >= sent {
		t.Errorf("got %d drops of %d datagrams for which there is no room", dropped, sent)
	}
	if err := bind.Close(); err != nil {
		t.Fatal(err)
	}
	if got := bind.Observations(); got.SocketDrops != dropped || got.ReceiveBuffer != 0 {
		t.Errorf("after closing: got %d drops and a buffer of %d bytes, want %d and none", got.SocketDrops, got.ReceiveBuffer, dropped)
	}
}
