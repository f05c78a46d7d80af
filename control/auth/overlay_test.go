package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// overlay simulates the tunnel: connections in memory with arbitrary overlay addresses.
type overlay struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newOverlay() *overlay {
	return &overlay{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (o *overlay) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.done:
		return nil, net.ErrClosed
	}
}

func (o *overlay) Close() error {
	o.once.Do(func() { close(o.done) })
	return nil
}

func (o *overlay) Addr() net.Addr { return addr("[fd00::1]:80") }

// dialFrom returns the dialer of the gateway with an address.
func (o *overlay) dialFrom(from netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case o.conns <- fromConn{far, addr(netip.AddrPortFrom(from, 40000).String())}:
			return near, nil
		case <-o.done:
			return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type fromConn struct {
	net.Conn
	from net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.from }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// directory is a Directory filled by a test.
type directory struct {
	mu      sync.Mutex
	callers map[netip.Addr]Caller
}

func (d *directory) Caller(a netip.Addr) (Caller, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.callers[a]
	return c, ok
}

func (d *directory) set(c Caller) netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := peer.OverlayAddr(c.PublicKey)
	d.callers[a] = c
	return a
}

func (d *directory) remove(k peer.PublicKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.callers, peer.OverlayAddr(k))
}

// records keeps a log for inspection.
type records struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// events returns the audit records of a kind.
func (r *records) events(kind audit.Event) []map[string]any {
	var out []map[string]any
	for _, line := range bytes.Split([]byte(r.String()), []byte("\n")) {
		var m map[string]any
		if json.Unmarshal(line, &m) == nil && m[audit.KeyEvent] == string(kind) {
			out = append(out, m)
		}
	}
	return out
}

// redeemer adapts a function to a Redeemer.
type redeemer func(oneTime peer.PublicKey, q ticket.Request) (ticket.Grant, error)

func (f redeemer) Redeem(_ context.Context, k peer.PublicKey, q ticket.Request) (ticket.Grant, error) {
	return f(k, q)
}

var (
	edgeKey   = peer.PublicKey{1}
	berlinKey = peer.PublicKey{2}
	ticketKey = peer.PublicKey{3}
	serverIP  = netip.MustParseAddr("fd00::1")

	edge = Caller{Name: "edge", PublicKey: edgeKey, Grants: []string{"auth", "apiServer"}}
)

// site is a running server.
type site struct {
	t    *testing.T
	dir  *directory
	net  *overlay
	log  *records
	srv  *Server
	stop func()
}

// serve starts a server whose options a test may change. Its peer is edge.
func serve(t *testing.T, change func(*ServerOptions)) *site {
	t.Helper()
	s := &site{t: t, dir: &directory{callers: map[netip.Addr]Caller{}}, net: newOverlay(), log: &records{}}
	s.dir.set(edge)
	logger := slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := ServerOptions{Name: "cloud", Software: "postern test", Directory: s.dir, Audit: audit.New(logger), Logger: logger}
	if change != nil {
		change(&o)
	}
	var err error
	if s.srv, err = NewServer(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.srv.Serve(ctx, s.net) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// client returns the client of the gateway with a key.
func (s *site) client(k peer.PublicKey) *Client {
	return NewClient(serverIP, s.net.dialFrom(peer.OverlayAddr(k)))
}

// jsonLogger returns a logger that writes to records.
func jsonLogger(to *records) *slog.Logger { return slog.New(slog.NewJSONHandler(to, nil)) }
