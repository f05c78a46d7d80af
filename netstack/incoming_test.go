package netstack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/postern-dev/postern/testenv/patience"
)

// asked returns a pair whose second stack passes requests to the test.
func asked(t *testing.T, o Options) (pair, chan *Incoming) {
	requests := make(chan *Incoming)
	quit := make(chan struct{})
	o.OnTCP = func(in *Incoming) {
		select {
		case requests <- in:
			<-quit
		case <-quit:
		}
	}
	p := newPair(t, Options{}, o, impairment{})
	t.Cleanup(func() { close(quit) })
	return p, requests
}

// dialing starts a dial and returns its outcome.
func dialing(ctx context.Context, s *Stack, to netip.AddrPort) chan error {
	result := make(chan error, 1)
	go func() {
		c, err := s.DialTCP(ctx, to)
		if err == nil {
			c.Close()
		}
		result <- err
	}()
	return result
}

// next waits for a request.
func next(t *testing.T, requests <-chan *Incoming) *Incoming {
	t.Helper()
	select {
	case in := <-requests:
		return in
	case <-time.After(patience.Left()):
		t.Fatal("no request arrived")
		return nil
	}
}

func TestAcceptCompletesTheHandshakeOnlyThen(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		p, requests := asked(t, Options{})
		to := netip.AddrPortFrom(b, 6443)
		type dialled struct {
			c   *Conn
			err error
		}
		result := make(chan dialled, 1)
		go func() {
			c, err := p.a.DialTCP(within(t), to)
			result <- dialled{c, err}
		}()
		in := next(t, requests)
		if in.Local() != to || in.Remote().Addr() != a || in.Remote().Port() == 0 {
			t.Errorf("the request is from %v to %v, want from %v to %v", in.Remote(), in.Local(), a, to)
		}
		select {
		case r := <-result:
			t.Fatalf("the dial ended before anyone accepted: %v", r.err)
		case <-time.After(50 * time.Millisecond):
		}
		server, err := in.Accept(within(t))
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		r := <-result
		if r.err != nil {
			t.Fatal(r.err)
		}
		defer r.c.Close()
		if _, err := r.c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		r.c.Close()
		if got, err := io.ReadAll(server); string(got) != "hello" || err != nil {
			t.Errorf("server reads %q, %v", got, err)
		}
		if _, err := in.Accept(within(t)); !errors.Is(err, ErrDecided) {
			t.Errorf("accepting twice gives %v, want %v", err, ErrDecided)
		}
		in.Refuse() // Too late: no effect.
		in.Drop()
	})
}

func TestRefuseIsSeenAtOnce(t *testing.T) {
	families(t, func(t *testing.T, _, b netip.Addr) {
		p, requests := asked(t, Options{})
		result := dialing(within(t), p.a, netip.AddrPortFrom(b, 80))
		in := next(t, requests)
		in.Refuse()
		if err := <-result; !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a refused dial gives %v, want %v", err, syscall.ECONNREFUSED)
		}
	})
}

func TestDropIsSilence(t *testing.T) {
	p, requests := asked(t, Options{})
	ctx, cancel := context.WithCancel(within(t))
	result := dialing(ctx, p.a, netip.AddrPortFrom(b6, 80))
	next(t, requests).Drop()
	again := next(t, requests) // The SYN is repeated, and is a new request.
	if st := p.b.Stats(); st.SentPackets != 0 {
		t.Errorf("%d packets were sent in answer, want silence", st.SentPackets)
	}
	again.Drop()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the dial gives %v, want %v", err, context.Canceled)
	}
}

func TestUndecidedRequestIsRefusedWhenOnTCPReturns(t *testing.T) {
	p := newPair(t, Options{}, Options{OnTCP: func(*Incoming) {}}, impairment{})
	if _, err := p.a.DialTCP(within(t), netip.AddrPortFrom(b6, 80)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the dial gives %v, want %v", err, syscall.ECONNREFUSED)
	}
}

func TestListenersComeBeforeOnTCP(t *testing.T) {
	p, requests := asked(t, Options{})
	client, _ := p.connect(t, b6)
	client.Close()
	select {
	case in := <-requests:
		t.Errorf("OnTCP got a request for a listener's port: %v", in.Local())
	default:
	}
}

// An acceptance whose peer never answers ends with its context, and the request's slot is
// free again.
func TestAcceptEndsWithItsContext(t *testing.T) {
	requests := make(chan *Incoming, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var once sync.Once
	accepted := make(chan error, 1)
	s, err := New(Options{Addresses: []netip.Addr{b6}, MaxPendingTCP: 1, OnTCP: func(in *Incoming) {
		once.Do(func() {
			_, err := in.Accept(ctx)
			accepted <- err
		})
		requests <- in
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	inject(t, s, syn(1000)) // Nobody reads the SYN-ACK.
	inject(t, s, syn(1001)) // One too many at once.
	if got := s.Stats().Dropped[DropPending]; got != 1 {
		t.Errorf("%d requests were dropped for the limit, want 1", got)
	}
	cancel()
	if err := <-accepted; !errors.Is(err, context.Canceled) {
		t.Errorf("Accept gives %v, want %v", err, context.Canceled)
	}
	next(t, requests)
	inject(t, s, syn(1002))
	if in := next(t, requests); in.Remote().Port() != 1002 {
		t.Errorf("the next request is from port %d, want 1002", in.Remote().Port())
	}
}

// A peer that keeps sending while an acceptance is abandoned must not find the handshake half
// removed: gVisor would dereference what it has just dropped.
func TestSegmentsDuringAnAbandonedHandshake(t *testing.T) {
	const ports, rounds = 64, abandonedRounds
	var ended [ports]chan struct{}
	for i := range ended {
		ended[i] = make(chan struct{})
	}
	s, err := New(Options{Addresses: []netip.Addr{b6}, MaxPendingTCP: pendingShare * ports, OnTCP: func(in *Incoming) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if _, err := in.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Accept gives %v, want %v", err, context.DeadlineExceeded)
		}
		ended[in.Remote().Port()%ports] <- struct{}{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	bound := within(t)
	var peers sync.WaitGroup
	for i := range uint16(ports) {
		peers.Go(func() {
			for round := range uint16(rounds) {
				port := 1024 + round*ports + i
				inject(t, s, syn(port))
				ack := syn(port)
				ack[ipv6HeaderLen+tcpFlags] = byte(header.TCPFlagAck) // Of nothing that was sent.
				for over := false; !over; {
					inject(t, s, ack)
					select {
					case <-ended[i]:
						over = true
					case <-bound.Done():
						t.Errorf("the acceptance of a connection from port %d did not end", port)
						return
					default:
					}
				}
			}
		})
	}
	peers.Wait()
}

func TestCloseEndsAPendingAccept(t *testing.T) {
	accepting := make(chan struct{})
	accepted := make(chan error, 1)
	s, err := New(Options{Addresses: []netip.Addr{b6}, OnTCP: func(in *Incoming) {
		close(accepting)
		_, err := in.Accept(context.Background())
		accepted <- err
	}})
	if err != nil {
		t.Fatal(err)
	}
	inject(t, s, syn(1000))
	<-accepting
	s.Close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept gives %v, want %v", err, net.ErrClosed)
	}
}

// syn returns a connection request from a6 to port 80 of b6. Its TCP checksum is wrong, which is
// not verified.
func syn(port uint16) []byte {
	p := append(ipv6Packet(a6, b6), make([]byte, 20)...)
	p[ipv6PayloadLen+1], p[ipv6NextHeader] = 20, protoTCP
	tcp := p[ipv6HeaderLen:]
	tcp[0], tcp[1], tcp[3] = byte(port>>8), byte(port), 80
	tcp[tcpDataOffset], tcp[tcpFlags], tcp[14] = 5<<4, flagSYN, 0xff
	return p
}
