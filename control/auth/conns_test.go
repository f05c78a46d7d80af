package auth

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestConnectionsAreBoundedByWhoseTheyAre(t *testing.T) {
	address := func(a netip.Addr) netip.Prefix { return network(a, hostBits) }
	site := func(a netip.Addr) netip.Prefix { return network(a, ipv6Most) }
	nobody := func(netip.Addr) netip.Prefix { return netip.Prefix{} }
	for _, c := range []struct {
		name  string
		conns int
		whose func(netip.Addr) netip.Prefix
		from  func(i int) string
		want  int
	}{
		{"one peer in the tunnel", peerConns, address, func(int) string { return "fd00::1" }, peerConns},
		{"many peers in the tunnel", peerConns, address, func(i int) string { return fmt.Sprintf("fd00::%x", i) }, totalConns},
		{"a node or an Ingress", 0, site, func(int) string { return "10.0.0.1" }, totalConns},
		{"all strangers in the tunnel", peerConns, nobody, func(i int) string { return fmt.Sprintf("fd00::%x", i) }, unknownConns},
		{"the addresses of one IPv6 user", 0, site, func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i) }, totalConns},
	} {
		l := newBoundedListener(nil, bounds{conns: c.conns, whose: c.whose})
		open := map[*boundedConn]bool{}
		for i := range 2 * totalConns {
			conn := &boundedConn{from: c.whose(netip.MustParseAddr(c.from(i)))}
			open[conn] = true
			delete(open, l.admit(conn))
			if i%5 == 0 {
				l.prove(conn, peer.PublicKey{byte(i % 3)})
			}
		}
		if len(open) != c.want || l.total != c.want {
			t.Errorf("%s: %d connections, %d counted, want %d", c.name, len(open), l.total, c.want)
		}
		for conn := range open {
			l.drop(conn)
			l.drop(conn)
		}
		if l.total != 0 || len(l.callers)+len(l.unproven)+len(l.proven) != 0 {
			t.Errorf("%s: counted after all are closed: %d, %v, %v, %v", c.name, l.total, l.callers, l.unproven, l.proven)
		}
	}
}

// public is auth outside the tunnel behind a proxy that terminates TLS, with connections in
// memory.
type public struct {
	*outside
	net *overlay
}

// servePublic serves edge and berlin. wrap, if not nil, wraps the listener.
func servePublic(t *testing.T, wrap func(net.Listener) net.Listener) *public {
	t.Helper()
	p := &public{outside: newOutside(t, nil), net: newOverlay()}
	p.dir.set(Caller{Name: "berlin", PublicKey: berlinKey})
	ln := net.Listener(p.net)
	if wrap != nil {
		ln = wrap(ln)
	}
	p.listen(t, ln)
	return p
}

func (o *overlay) connect(t *testing.T, from string) net.Conn {
	t.Helper()
	c, err := o.dialFrom(netip.MustParseAddr(from))(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// hello sends a request on a connection, and returns the answer's status.
func hello(c net.Conn, token Token) (int, error) {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", HelloPath, string(token)); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// Others who hold connections outside the tunnel must not lock out a peer, whose address is
// 192.0.2.1.
func TestStrangersDoNotKeepPeersOut(t *testing.T) {
	for _, c := range []struct {
		name string
		from func(i int) string
		by   peer.PublicKey // the owner of their tokens
		// flooded: a peer that has not sent a request yet may be displaced.
		flooded bool
	}{
		{name: "one address", from: func(int) string { return "198.51.100.1" }},
		{name: "two addresses", from: func(i int) string { return fmt.Sprintf("198.51.100.%d", i%2) }},
		{name: "64 addresses", from: func(i int) string { return fmt.Sprintf("198.51.100.%d", i%64) }},
		{name: "an IPv6 user", from: func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i) }},
		{name: "an address for each connection", from: func(i int) string { return fmt.Sprintf("10.0.%d.%d", i/256, i%256) }, flooded: true},
		{name: "the peer's own address", from: func(int) string { return "192.0.2.1" }, flooded: true},
		{name: "64 addresses with another peer's token", from: func(i int) string { return fmt.Sprintf("198.51.100.%d", i%64) }, by: edgeKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := servePublic(t, nil)
				token := p.token(t, berlinKey, time.Now())
				fill := func() {
					for i := range 2 * totalConns {
						conn := p.net.connect(t, c.from(i))
						if c.by != (peer.PublicKey{}) {
							_, _ = hello(conn, p.token(t, c.by, time.Now()))
						}
					}
				}
				served := func(when string, conn net.Conn) {
					t.Helper()
					if code, err := hello(conn, token); code != http.StatusOK {
						t.Errorf("%s: status %d, %v", when, code, err)
					}
				}
				fill()
				slow := p.net.connect(t, "192.0.2.1")
				conn := p.net.connect(t, "192.0.2.1")
				served("a new connection", conn)
				fill()
				served("the same connection", conn)
				if !c.flooded {
					served("a slow connection", slow)
				}
			})
		})
	}
}

// Inside the tunnel, ticket holders and pending peers may have more keys than there are
// connections.
func TestThoseWhoAreNoPeersYetDoNotKeepPeersOut(t *testing.T) {
	for _, caller := range []Caller{{Kind: KindOneTime}, {Pending: true}} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, nil)
			for i := range totalConns {
				caller.PublicKey = peer.PublicKey{9, byte(i % 8)}
				if caller.Pending {
					caller.Name = fmt.Sprintf("new-%d", i%8)
				}
				conn := s.net.connect(t, s.dir.set(caller).String())
				if code, err := hello(conn, ""); code != http.StatusOK {
					t.Fatalf("connection %d: status %d, %v", i, code, err)
				}
			}
			if _, err := s.client(edgeKey).Hello(t.Context()); err != nil {
				t.Errorf("kind %d, pending %t: %v", caller.Kind, caller.Pending, err)
			}
			s.stop()
		})
	}
}

// Displacing a stranger who does not read TLS's close_notify must not block others.
func TestDisplacingWaitsForNoStranger(t *testing.T) {
	file, _ := certificate(t)
	synctest.Test(t, func(t *testing.T) {
		p := servePublic(t, file.Listen)
		start := time.Now()
		for range 2 {
			// In TLS 1.2 the server finishes the handshake when the client does.
			c := tls.Client(p.net.connect(t, "198.51.100.1"), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
			if err := c.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range totalConns {
			p.net.connect(t, "198.51.100.1")
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// Silent clients outside the tunnel lose their connections after a short time.
func TestSilentStrangersAreHungUpOn(t *testing.T) {
	o := serveOutside(t)
	start := time.Now()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", o.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(start.Add(patience.Left())); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	if took := time.Since(start); err == nil || errors.Is(err, os.ErrDeadlineExceeded) || took < outsideHeaderTimeout-100*time.Millisecond {
		t.Errorf("the connection ended after %v with %v", took, err)
	}
}
