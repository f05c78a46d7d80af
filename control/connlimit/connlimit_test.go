package connlimit

import (
	"io"
	"net"
	"testing"
)

// pipes is a listener whose connections are named by their clients.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (pipes) Close() error                { return nil }
func (pipes) Addr() net.Addr              { return nil }

type named struct {
	net.Conn
	name string
	gone *bool
}

func (n named) Close() error {
	*n.gone = true
	return n.Conn.Close()
}

func TestClientsWithManyGiveWay(t *testing.T) {
	const each, total = 3, 7
	in := make(pipes, 1)
	var refused []string
	ln := Listen(in, Options[string]{
		Of: func(c net.Conn) string { return c.(named).name }, Each: each, Total: total,
		Refused: func(name string) { refused = append(refused, name) },
	})
	dial := func(name string) (gone *bool) {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		gone = new(bool)
		in <- named{here, name, gone}
		return gone
	}
	accept := func() net.Conn {
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var gone []*bool
	var conns []net.Conn
	for _, name := range []string{"a", "a", "a", "b", "b", "c", "c"} {
		gone, conns = append(gone, dial(name)), append(conns, accept())
	}
	// A fourth one of a is closed, and the next of another takes the place of the first of a, which
	// has most.
	more := dial("a")
	done := make(chan net.Conn)
	go func() { done <- accept() }()
	last := dial("d")
	if c := <-done; c.(*Conn).NetConn().(named).name != "d" {
		t.Errorf("accepted %v", c)
	}
	if !*more || len(refused) != 1 || refused[0] != "a" {
		t.Errorf("the fourth one of a is closed: %t, refused are %v", *more, refused)
	}
	for i, g := range gone {
		if *g != (i == 0) {
			t.Errorf("connection %d is closed: %t", i, *g)
		}
	}
	// Whoever was displaced has no place to give back, and gives it back once only.
	l := ln.(*listener[string])
	_, _ = conns[0].Close(), conns[0].Close()
	if l.total != total {
		t.Errorf("%d connections are counted, want %d", l.total, total)
	}
	for _, c := range conns[1:] {
		_, _ = c.Close(), c.Close()
	}
	if l.total != 1 || len(l.open) != 1 || *last {
		t.Errorf("%d connections of %d are left, want that of d", l.total, len(l.open))
	}
}

// Clients with one connection each give way to a new one, the oldest first: whoever has many
// addresses keeps nobody out.
func TestManyAddressesKeepNobodyOut(t *testing.T) {
	const total = 4
	l := Listen(nil, Options[int]{Each: 3, Total: total}).(*listener[int])
	var conns []*Conn
	for who := range 3 * total {
		c := &Conn{}
		conns = append(conns, c)
		out := l.enter(who, c)
		switch {
		case who < total && out != nil:
			t.Fatalf("connection %d has no place", who)
		case who >= total && out != conns[who-total]:
			t.Fatalf("connection %d does not displace the oldest", who)
		}
	}
	if l.total != total || len(l.open) != total {
		t.Errorf("%d connections of %d clients are counted, want %d", l.total, len(l.open), total)
	}
}

// A server ends its answer while it still reads, as http.Server does.
func TestOneDirectionCanBeClosed(t *testing.T) {
	raw, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := Listen(raw, Options[int]{Of: func(net.Conn) int { return 0 }, Each: 1})
	defer ln.Close()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	half, can := c.(interface{ CloseWrite() error })
	if !can {
		t.Fatal("the connection cannot end what it sends")
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(client); len(b) > 0 || err != nil {
		t.Errorf("the client reads %q, %v; want the end", b, err)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("the server reads nothing any more: %v", err)
	}
}
