package netstack

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/postern-dev/postern/testenv/patience"
)

// endpointsWith counts the TCP endpoints that gVisor holds for a remote address.
func (s *Stack) endpointsWith(remote netip.Addr) int {
	n := 0
	for _, ep := range s.gv.RegisteredEndpoints() {
		if t, ok := ep.(*tcp.Endpoint); ok && t.Info().(*stack.TransportEndpointInfo).ID.RemoteAddress == toAddress(remote) {
			n++
		}
	}
	return n
}

// eventually polls until a condition holds for which there is no event.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience.Left()); !holds(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: it is not", what)
		}
	}
}

// stuff writes until nothing more fits, because nobody reads.
func stuff(t *testing.T, c *Conn) {
	t.Helper()
	much := make([]byte, 64<<20)
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := c.Write(much); err == nil {
		t.Fatal("64 MB were taken that nobody reads")
	}
}

// A peer that answers window probes but never reads must not keep what we have closed.
func TestClosedConnectionsEndWhenThePeerTakesNothing(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	p.a.orphan = 500 * time.Millisecond
	client, server := p.connect(t, b6)
	stuff(t, client)
	closed := time.Now()
	client.Close()
	if (p.a.endpointsWith(b6) != 1 || p.a.Stats().TCPMemory == 0) && time.Since(closed) < p.a.orphan {
		t.Error("closing does not leave the unsent data with gVisor: the test tests nothing")
	}
	eventually(t, "the closed connection ends", func() bool { return p.a.endpointsWith(b6) == 0 })
	// gVisor reports the end a moment after it has forgotten the endpoint.
	eventually(t, "nothing is booked any more", func() bool { return p.a.Stats().TCPMemory == 0 })
	buf := make([]byte, 1<<20)
	var err error
	for err == nil {
		_, err = server.Read(buf)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer's reading ends with %v, want %v", err, syscall.ECONNRESET)
	}
}

// What was written before Close arrives, if the peer reads.
func TestClosedConnectionsFinishWhatWasWritten(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	client, server := p.connect(t, b6)
	stuff(t, client)
	client.Close()
	n, err := server.WriteTo(new(counter))
	if err != nil || n < 100_000 {
		t.Errorf("the peer read %d bytes, %v; want all and its end", n, err)
	}
}

// only matches one address.
func only(a netip.Addr) func(netip.Addr) bool { return func(b netip.Addr) bool { return a == b } }

// counter discards what it gets.
type counter struct{}

func (*counter) Write(b []byte) (int, error) { return len(b), nil }

func TestAbortEndsEverythingOfAnAddress(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		p, requests := asked(t, Options{})
		open, _ := p.connect(t, b)
		closing, stalled := p.connect(t, b)
		stuff(t, stalled)
		stalled.Close() // Its data are never read.
		l, unaccepted := p.listen(t, b)
		waiting, err := p.a.DialTCP(within(t), unaccepted)
		if err != nil {
			t.Fatal(err)
		}
		defer waiting.Close()
		dial := dialing(within(t), p.a, netip.AddrPortFrom(b, 6443))
		undecided := next(t, requests)
		other := a4
		if a.Is4() {
			other = a6
		}
		// The other family's address stands for another peer.
		addr := b6
		if other.Is4() {
			addr = b4
		}
		bystander, far := p.connect(t, addr)

		p.b.Abort(only(a))
		if n := p.b.endpointsWith(a); n != 0 {
			t.Errorf("%d endpoints are left of the peer", n)
		}
		for name, c := range map[string]*Conn{"open": open, "waiting": waiting} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("reading the %s connection at the peer gives %v, want %v", name, err, syscall.ECONNRESET)
			}
		}
		closing.Close()
		if err := <-dial; !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the undecided request ends with %v, want %v", err, syscall.ECONNREFUSED)
		}
		if _, err := undecided.Accept(context.Background()); !errors.Is(err, ErrDecided) {
			t.Errorf("accepting it gives %v, want %v", err, ErrDecided)
		}
		l.Close()
		go func() { _, _ = bystander.Write([]byte("x")) }()
		if _, err := far.Read(make([]byte, 1)); err != nil {
			t.Errorf("another peer's connection: %v", err)
		}
	})
}

func TestAbortFailsReadsAndDials(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	client, _ := p.connect(t, b6)
	reading := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		reading <- err
	}()
	nobody := b6.Next()
	dial := dialing(within(t), p.a, netip.AddrPortFrom(nobody, 80))
	eventually(t, "the dial begins", func() bool { return p.a.endpointsWith(nobody) == 1 })
	p.a.Abort(only(nobody))
	p.a.Abort(only(b6))
	if err := <-reading; !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("reading gives %v, want %v", err, syscall.ECONNABORTED)
	}
	if err := <-dial; !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("dialling gives %v, want %v", err, syscall.ECONNABORTED)
	}
}

// WireGuard closes its device while it holds a lock that an OnTCP call may need.
func TestClosingTheDeviceWaitsForNobody(t *testing.T) {
	p, requests := asked(t, Options{})
	dial := dialing(within(t), p.a, netip.AddrPortFrom(b6, 80))
	next(t, requests) // Its OnTCP call lasts until the test ends.
	closed := make(chan error, 1)
	go func() { closed <- p.b.Device().Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience.Left()):
		t.Fatal("closing the device waits for an OnTCP call")
	}
	if !isClosed(p.b.Done()) {
		t.Error("closing the device did not begin to close the stack")
	}
	p.a.Close()
	if err := <-dial; err == nil {
		t.Error("the dial succeeded, though nobody accepted it")
	}
}
