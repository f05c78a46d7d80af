package netstack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/postern-dev/postern/testenv/patience"
)

// The standard library's tests of a net.Conn.
func TestConnBehavesAsNetConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		p := newPair(t, Options{}, Options{}, impairment{})
		client, server := p.connect(t, b6)
		_ = client.SetDeadline(time.Time{})
		_ = server.SetDeadline(time.Time{})
		return client, server, func() { client.Close(); server.Close(); p.a.Close(); p.b.Close() }, nil
	})
}

func TestAddressesOfAConnection(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		p := newPair(t, Options{}, Options{}, impairment{})
		client, server := p.connect(t, b)
		if got, want := client.RemoteAddr().String(), server.LocalAddr().String(); got != want {
			t.Errorf("the client's remote address is %s, want %s", got, want)
		}
		if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); got != want {
			t.Errorf("the server's remote address is %s, want %s", got, want)
		}
		if got := client.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); got != a {
			t.Errorf("the client's address is %v, want %v", got, a)
		}
	})
}

func TestHalfCloseLeavesTheOtherDirectionOpen(t *testing.T) {
	families(t, func(t *testing.T, _, b netip.Addr) {
		p := newPair(t, Options{}, Options{}, impairment{})
		client, server := p.connect(t, b)
		if _, err := client.Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		if err := client.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(server); string(got) != "question" || err != nil {
			t.Fatalf("server reads %q, %v", got, err)
		}
		answer := bytes.Repeat([]byte("answer"), 200_000)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := server.Write(answer); err != nil {
				t.Errorf("writing after the peer's half-close: %v", err)
			}
			server.Close()
		})
		if got, err := io.ReadAll(client); !bytes.Equal(got, answer) || err != nil {
			t.Errorf("client reads %d bytes, %v; want %d", len(got), err, len(answer))
		}
		wg.Wait()
		if _, err := client.Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("writing after CloseWrite gives %v, want %v", err, syscall.EPIPE)
		}
		client.Close()
		if err := client.CloseWrite(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("CloseWrite after Close gives %v, want %v", err, net.ErrClosed)
		}
	})
}

func TestAbortResetsTheOtherSide(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	client, server := p.connect(t, b6)
	reading := make(chan error)
	go func() {
		_, err := client.Read(make([]byte, 1))
		reading <- err
	}()
	client.Abort()
	client.Abort() // Harmless.
	if err := <-reading; !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading on the aborting side gives %v, want %v", err, net.ErrClosed)
	}
	for range 2 { // The error stays.
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reading after the peer's abort gives %v, want %v", err, syscall.ECONNRESET)
		}
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("writing after the peer's abort gives %v, want %v", err, syscall.ECONNRESET)
	}
}

func TestDeadlines(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	client, _ := p.connect(t, b6)
	_ = client.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	_, err := client.Read(make([]byte, 1))
	var ne net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("reading past the deadline gives %v, want %v", err, os.ErrDeadlineExceeded)
	}
	much := make([]byte, 64<<20) // Nobody reads: more than all buffers hold.
	_ = client.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := client.Write(much)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 64<<20 {
		t.Errorf("writing past the deadline took %d bytes, %v; want some of them and %v", n, err, os.ErrDeadlineExceeded)
	}
}

func TestDialFailures(t *testing.T) {
	families(t, func(t *testing.T, _, b netip.Addr) {
		p := newPair(t, Options{}, Options{}, impairment{})
		if _, err := p.a.DialTCP(within(t), netip.AddrPortFrom(b, 81)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a port that nobody serves gives %v, want %v", err, syscall.ECONNREFUSED)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := p.a.DialTCP(ctx, netip.AddrPortFrom(b.Next(), 80)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an address that nobody has gives %v, want %v", err, context.DeadlineExceeded)
		}
		if _, err := p.a.DialTCP(ctx, netip.AddrPortFrom(b, 80)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that has ended gives %v, want %v", err, context.DeadlineExceeded)
		}
	})
	s, err := New(Options{Addresses: []netip.Addr{a6}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.DialTCP(within(t), netip.AddrPortFrom(b4, 80)); !errors.Is(err, ErrNoAddress) {
		t.Errorf("IPv4 without an IPv4 address gives %v, want %v", err, ErrNoAddress)
	}
	for _, c := range []struct{ network, address string }{{"tcp", "name:80"}, {"tcp", "10.0.0.1"}, {"unix", "[fd00::b]:80"}, {"udp", "10.0.0.1:1"}} {
		if c, err := s.DialContext(within(t), c.network, c.address); err == nil || c != nil {
			t.Errorf("dialling %v gives %v, %v; want an error and nil", c, c, err)
		}
	}
}

func TestListen(t *testing.T) {
	families(t, func(t *testing.T, _, b netip.Addr) {
		p := newPair(t, Options{}, Options{}, impairment{})
		any := netip.IPv6Unspecified()
		if b.Is4() {
			any = netip.IPv4Unspecified()
		}
		l, err := p.b.Listen(netip.AddrPortFrom(any, 7000))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.b.Listen(netip.AddrPortFrom(b, 7000)); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listening twice gives %v, want %v", err, syscall.EADDRINUSE)
		}
		if _, err := p.b.Listen(netip.AddrPortFrom(b.Next(), 1)); !errors.Is(err, ErrNoAddress) {
			t.Errorf("listening on another's address gives %v, want %v", err, ErrNoAddress)
		}
		c, err := p.a.DialContext(within(t), "tcp", netip.AddrPortFrom(b, 7000).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		accepting := make(chan error)
		go func() {
			_, err := l.Accept()
			accepting <- err
		}()
		l.Close()
		if err := <-accepting; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept on a closed listener gives %v, want %v", err, net.ErrClosed)
		}
		if _, err := p.a.DialTCP(within(t), netip.AddrPortFrom(b, 7000)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling a closed listener gives %v, want %v", err, syscall.ECONNREFUSED)
		}
		c.(*Conn).Abort() // The accepted connection holds the port.
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reading gives %v, want %v", err, syscall.ECONNRESET)
		}
		again, err := p.b.Listen(netip.AddrPortFrom(b, 7000))
		if err != nil {
			t.Fatalf("the port is not free again: %v", err)
		}
		again.Close()
	})
}

// Two concurrent long writes arrive one after the other.
func TestWritesDoNotMix(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	client, server := p.connect(t, b6)
	const size = 3 << 20
	var wg sync.WaitGroup
	for _, b := range []byte("ab") {
		wg.Go(func() {
			if _, err := client.Write(bytes.Repeat([]byte{b}, size)); err != nil {
				t.Errorf("write: %v", err)
			}
		})
	}
	got := make([]byte, 2*size)
	if _, err := io.ReadFull(server, got); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i := range got {
		if got[i] != got[i/size*size] {
			t.Fatalf("byte %d is %q, want %q", i, got[i], got[i/size*size])
		}
	}
}

// The stack reaches its own addresses without the device.
func TestDialToOneself(t *testing.T) {
	families(t, func(t *testing.T, _, b netip.Addr) {
		p := newPair(t, Options{}, Options{}, impairment{})
		l, addr := p.listen(t, b)
		c, err := p.b.DialTCP(within(t), addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		transfer(t, c, s.(*Conn), 4<<20, 3)
		if st := p.b.Stats(); st.SentPackets != 0 {
			t.Errorf("%d packets left through the device", st.SentPackets)
		}
	})
}

func TestHTTPOverTheStack(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	l, addr := p.listen(t, b6)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	defer wg.Wait()
	defer srv.Close()
	transport := &http.Transport{DialContext: p.a.DialContext}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience.Left()}
	for range 5 {
		body := strings.Repeat("hello ", 50_000)
		req, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+addr.String()+"/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if string(got) != body || err != nil {
			t.Errorf("echoed %d bytes, %v; want %d", len(got), err, len(body))
		}
	}
}

func TestUDP(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		p := newPair(t, Options{}, Options{}, impairment{})
		server, err := p.b.ListenPacket(netip.AddrPortFrom(b, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		to := server.LocalAddr().(*net.UDPAddr).AddrPort()
		client, err := p.a.DialContext(within(t), "udp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		_ = client.SetDeadline(time.Now().Add(patience.Left()))
		_ = server.SetDeadline(time.Now().Add(patience.Left()))
		buf := make([]byte, 65536)
		for _, size := range []int{1, 0, 1300, 1500, 60000} { // The last two in fragments.
			message := make([]byte, size)
			_, _ = io.ReadFull(random(9), message)
			if n, err := client.Write(message); n != size || err != nil {
				t.Fatalf("sent %d of %d bytes, %v", n, size, err)
			}
			n, from, err := server.ReadFrom(buf)
			if err != nil || !bytes.Equal(buf[:n], message) {
				t.Fatalf("server got %d of %d bytes, %v", n, size, err)
			}
			if got := from.(*net.UDPAddr).AddrPort(); got.Addr() != a || got.String() != client.LocalAddr().String() {
				t.Errorf("the message comes from %v, want %v", got, client.LocalAddr())
			}
			if _, err := server.WriteTo(buf[:n], from); err != nil {
				t.Fatal(err)
			}
			if n, err = client.Read(buf); err != nil || !bytes.Equal(buf[:n], message) {
				t.Fatalf("client got %d of %d bytes back, %v", n, size, err)
			}
		}
		if _, err := server.WriteTo(buf[:1], &net.TCPAddr{}); err == nil {
			t.Error("an address that isn't UDP's is accepted")
		}
		reading := make(chan error)
		go func() {
			_, _, err := server.ReadFrom(buf)
			reading <- err
		}()
		server.Close()
		if err := <-reading; !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading a closed socket gives %v, want %v", err, net.ErrClosed)
		}
		if _, err := client.Write([]byte("anyone?")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(buf); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("writing to a closed port ends in %v, want %v", err, syscall.ECONNREFUSED)
		}
		if got := p.b.Stats().Dropped[DropUDPNoSocket]; got != 1 {
			t.Errorf("%d datagrams without a socket were counted, want 1", got)
		}
	})
}

func TestPing(t *testing.T) {
	families(t, func(t *testing.T, a, b netip.Addr) {
		p := newPair(t, Options{}, Options{}, impairment{})
		for _, size := range []int{0, 1, 56, 1372, 4000} {
			rtt, err := p.a.Ping(within(t), b, size)
			if err != nil || rtt <= 0 {
				t.Errorf("ping with %d bytes: %v, %v", size, rtt, err)
			}
		}
		var wg sync.WaitGroup
		for range 50 { // Each finds its own reply.
			wg.Go(func() {
				if _, err := p.a.Ping(within(t), b, 32); err != nil {
					t.Errorf("one of many pings: %v", err)
				}
			})
		}
		wg.Wait()
		if _, err := p.a.Ping(within(t), a, 8); err != nil {
			t.Errorf("ping to oneself: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := p.a.Ping(ctx, b.Next(), 8); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ping to nobody gives %v, want %v", err, context.DeadlineExceeded)
		}
		for _, size := range []int{-1, maxPingPayload + 1} {
			if _, err := p.a.Ping(within(t), b, size); err == nil {
				t.Errorf("a payload of %d bytes is accepted", size)
			}
		}
	})
}
