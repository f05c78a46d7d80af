package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/testenv/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The peers of every test, by overlay address.
var (
	cloudAddr  = netip.MustParseAddr("fd00::c")
	otherAddr  = netip.MustParseAddr("fd00::d")
	ticketAddr = netip.MustParseAddr("fd00::e")
	ownAddr    = netip.MustParseAddr("fd00::1")
)

// gateway is an Inbound and an Outbound with a policy that tests change.
type gateway struct {
	t     *testing.T
	flows *Flows
	in    *Inbound
	log   *logBuffer
	wg    sync.WaitGroup // Handle calls

	mu    sync.Mutex
	peers map[netip.Addr]Peer
	allow map[string][]string // services by peer
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newGateway returns a gateway whose peers cloud and other may reach the API server and the named
// service "registry". A nil dial dials for real.
func newGateway(t *testing.T, l Limits, dial func(context.Context, string) (Conn, error)) *gateway {
	g := &gateway{t: t, flows: NewFlows(l), log: &logBuffer{},
		peers: map[netip.Addr]Peer{cloudAddr: {Name: "cloud"}, otherAddr: {Name: "other"},
			ticketAddr: {Name: "ticket-1", OneTime: true}},
		allow: map[string][]string{"cloud": {api.ServiceAPIServer, "registry"}, "other": {api.ServiceAPIServer},
			"ticket-1": {api.ServiceAPIServer}}}
	logger := slog.New(slog.NewTextHandler(g.log, nil))
	g.in = NewInbound(g.flows, InboundOptions{
		Resolve: func(a netip.Addr) (Peer, bool) {
			g.mu.Lock()
			defer g.mu.Unlock()
			p, ok := g.peers[a]
			return p, ok
		},
		Allowed: func(p Peer, service string) bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			for _, s := range g.allow[p.Name] {
				if s == service {
					return true
				}
			}
			return false
		},
		Dial: dial, Logger: logger, Audit: audit.New(logger),
	})
	t.Cleanup(g.stop)
	return g
}

// stop ends everything, and fails the test if anything is left.
func (g *gateway) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = g.flows.Drain(ctx)
	g.wg.Wait()
	g.wantNothingLeft()
}

// wantNothingLeft checks that no flow, slot or large buffer is held.
func (g *gateway) wantNothingLeft() {
	g.t.Helper()
	g.flows.mu.Lock()
	if len(g.flows.open) != 0 || len(g.flows.used) != 0 {
		g.t.Errorf("left in the table: %d flows, usage %v", len(g.flows.open), g.flows.used)
	}
	g.flows.mu.Unlock()
	if g.flows.opened != [unadmitted + 1]int{} {
		g.t.Errorf("counted by class: %v", g.flows.opened)
	}
	u := g.flows.udp
	u.mu.Lock()
	if u.total != [unadmitted + 1]int{} || u.openInbound != 0 || len(u.owners) != 0 {
		g.t.Errorf("counted flows of datagrams: %v by class, %d inbound, of %v", u.total, u.openInbound, u.owners)
	}
	u.mu.Unlock()
	g.flows.loops.mu.Lock()
	if n := len(g.flows.loops.ends); n != 0 {
		g.t.Errorf("%d ends outside the tunnel", n)
	}
	g.flows.loops.mu.Unlock()
	for _, b := range g.flows.buffers {
		b.mu.Lock()
		if b.lent != 0 || len(b.peer) != 0 {
			g.t.Errorf("large buffers not given back: %d bytes, %v", b.lent, b.peer)
		}
		b.mu.Unlock()
	}
}

// offer sets the services: the API server and registry lead to upstream.
func (g *gateway) offer(upstream string, more ...Service) {
	g.t.Helper()
	services := append([]Service{
		{Name: api.ServiceAPIServer, Ports: api.PortsOf(api.PortAPIServer), Upstream: upstream},
		{Name: "registry", Ports: api.PortsOf(5000), Upstream: upstream},
	}, more...)
	if err := g.in.SetServices(services); err != nil {
		g.t.Fatal(err)
	}
}

// dial dials like a peer. The result is decided when it returns.
func (g *gateway) dial(from netip.Addr, port uint16) *syn {
	s := g.start(from, port)
	s.decided()
	return s
}

// start starts dialling and returns at once.
func (g *gateway) start(from netip.Addr, port uint16) *syn {
	s := &syn{t: g.t, remote: netip.AddrPortFrom(from, 40000), local: netip.AddrPortFrom(ownAddr, port),
		accepted: make(chan *net.TCPConn, 1), refused: make(chan struct{})}
	g.wg.Go(func() { g.in.Handle(s) })
	return s
}

// syn is an Incoming whose handshake makes a loopback TCP connection.
type syn struct {
	t             *testing.T
	remote, local netip.AddrPort
	never         bool // the handshake is never completed

	accepted chan *net.TCPConn // the peer's end
	refused  chan struct{}
}

func (s *syn) Remote() netip.AddrPort { return s.remote }
func (s *syn) Local() netip.AddrPort  { return s.local }
func (s *syn) Refuse()                { close(s.refused) } // a second call panics: it is a defect
func (s *syn) Drop()                  { s.t.Error("the connection was dropped") }

func (s *syn) Accept(ctx context.Context) (Conn, error) {
	if s.never {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	theirs, ours := tcpPair(s.t)
	s.accepted <- theirs
	return ours, nil
}

// decided waits for the outcome: the peer's end, or nil if it was refused.
func (s *syn) decided() *net.TCPConn {
	s.t.Helper()
	select {
	case c := <-s.accepted:
		s.accepted <- c
		return c
	case <-s.refused:
		return nil
	case <-time.After(patience.Left()):
		s.t.Fatal("the connection is neither accepted nor refused")
		return nil
	}
}

// conn returns the peer's end of a connection that must have been accepted.
func (s *syn) conn() *net.TCPConn {
	s.t.Helper()
	c := s.decided()
	if c == nil {
		s.t.Fatal("the connection was refused")
	}
	return c
}

// wasRefused reports whether the connection was refused.
func (s *syn) wasRefused() bool { return s.decided() == nil }

// tcpPair returns both ends of a loopback connection.
func tcpPair(t testing.TB) (client, server *net.TCPConn) {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	server, err = ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience.Left())
	_ = client.SetDeadline(deadline)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// upstream listens on loopback and returns its connections on a channel.
func upstream(t testing.TB) (address string, conns <-chan *net.TCPConn) {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ch := make(chan *net.TCPConn, 4096)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience.Left()))
			ch <- c
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		close(ch)
		for c := range ch {
			c.Close()
		}
	})
	return ln.Addr().String(), ch
}

// take waits for an upstream's next connection.
func take(t testing.TB, conns <-chan *net.TCPConn) *net.TCPConn {
	t.Helper()
	select {
	case c := <-conns:
		t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(patience.Left()):
		t.Fatal("the upstream was not dialled")
		return nil
	}
}

// closedPort returns a loopback address where nothing listens.
func closedPort(t testing.TB) string {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// send writes a text.
func send(t testing.TB, c io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("write %q: %v", text, err)
	}
}

// wantRead reads exactly a text.
func wantRead(t testing.TB, c io.Reader, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("read %q, %v; want %q", got, err, text)
	}
}

// wantEOF checks that the stream has ended.
func wantEOF(t testing.TB, c io.Reader) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("read %d bytes, %v; want the end of the stream", n, err)
	}
}

// wantReset checks that the connection was reset.
func wantReset(t testing.TB, c io.Reader) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	if !isReset(err) {
		t.Fatalf("read ended with %v, want a reset", err)
	}
}

// eventually waits for a condition that other goroutines cause.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience.Left())
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not happen", what)
		}
	}
}
