//go:build e2e

package relay_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/testenv/netlab"
)

// Addresses of the lab: a relay and two gateways on one network.
var (
	coturnAddr = netip.MustParseAddr("198.51.100.10")
	edgeAddrs  = []netip.Addr{netip.MustParseAddr("198.51.100.21"), netip.MustParseAddr("198.51.100.22")}
)

// coturn is the real server, in a namespace.
type coturn struct {
	t     *testing.T
	host  *netlab.Host
	edges []*netlab.Host
	args  []string
	ca    []byte
	run   *netlab.Process
}

// startCoturn starts the server with options that operators use.
func startCoturn(t *testing.T, options ...string) *coturn {
	t.Helper()
	lab := netlab.New(t)
	wan := lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	c := &coturn{t: t, host: lab.Host("relay")}
	c.host.Attach("eth0", wan, coturnAddr)
	for i, addr := range edgeAddrs {
		h := lab.Host(fmt.Sprintf("edge%d", i))
		h.Attach("eth0", wan, addr)
		c.edges = append(c.edges, h)
	}
	dir := t.TempDir()
	certificate, ca := certify(t)
	c.ca = ca
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"cert.pem": ca, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), "empty.conf": nil,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.args = append([]string{
		"turnserver", "-c", filepath.Join(dir, "empty.conf"), "--lt-cred-mech", "--user=edge:secret", "--realm=example.net",
		"--listening-ip=" + coturnAddr.String(), "--relay-ip=" + coturnAddr.String(), "--no-cli", "--log-file=stdout", "--simple-log",
		"--cert=" + filepath.Join(dir, "cert.pem"), "--pkey=" + filepath.Join(dir, "key.pem"),
		"--userdb=" + filepath.Join(dir, "users"), "--pidfile=" + filepath.Join(dir, "pid"), "--min-port=50000", "--max-port=50100",
	}, options...)
	c.start()
	return c
}

// start starts the server, and waits until it accepts connections.
func (c *coturn) start() {
	c.t.Helper()
	c.run = c.host.Start(netlab.Command{Args: c.args})
	eventually(c.t, "coturn listens", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		conn, err := c.edges[0].DialContext(ctx, "tcp", netip.AddrPortFrom(coturnAddr, 3478).String())
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
}

func (c *coturn) restart() {
	c.t.Helper()
	c.run.Kill()
	c.start()
}

// gateway runs a client on an edge.
func (c *coturn) gateway(t *testing.T, edge int, edit func(*relay.Server)) *gateway {
	t.Helper()
	conn, err := c.edges[edge].ListenUDP(netip.AddrPortFrom(edgeAddrs[edge], 51820))
	if err != nil {
		t.Fatal(err)
	}
	return c.gatewayOn(t, newSocket(t, conn), edge, edit)
}

func (c *coturn) gatewayOn(t *testing.T, sock *socket, edge int, edit func(*relay.Server)) *gateway {
	t.Helper()
	return c.adopting(t, sock, edge, edit, nil)
}

// adopting runs a gateway with an earlier allocation.
func (c *coturn) adopting(t *testing.T, sock *socket, edge int, edit func(*relay.Server), g *relay.Grant) *gateway {
	t.Helper()
	s := relay.Server{Address: coturnAddr.String(), Username: "edge", Password: "secret", ServerName: certificateName, CAData: c.ca}
	if edit != nil {
		edit(&s)
	}
	return start(t, relay.Options{Server: s, Socket: sock, Dial: c.edges[edge].DialContext, Previous: g})
}

// meet lets two gateways exchange datagrams with only their relayed addresses.
func meet(t *testing.T, a, b *gateway) {
	t.Helper()
	near, far := a.allocated(t, nil), b.allocated(t, nil)
	if d := exchange(t, func(s string) error { return a.trySend(near.ID, s, far.Relayed) }, b.inbox); d.from != near.Relayed {
		t.Errorf("a datagram came from %v, want from the relayed address %v", d.from, near.Relayed)
	}
	if d := exchange(t, func(s string) error { return b.trySend(far.ID, s, near.Relayed) }, a.inbox); d.from != far.Relayed {
		t.Errorf("a datagram came from %v, want from the relayed address %v", d.from, far.Relayed)
	}
}

func transport(name string) func(*relay.Server) {
	return func(s *relay.Server) { s.Transport = name }
}

func TestCoturnStrangersMeetOverEveryTransport(t *testing.T) {
	c := startCoturn(t)
	for _, name := range []string{relay.TransportUDP, relay.TransportTCP, relay.TransportTLS} {
		t.Run(name, func(t *testing.T) {
			a, b := c.gateway(t, 0, transport(name)), c.gateway(t, 1, transport(name))
			meet(t, a, b)
			if got := a.allocated(t, nil).Transport; got != name {
				t.Errorf("the transport is %s", got)
			}
			a.stop()
			b.stop()
		})
	}
}

func TestCoturnWithoutUDPIsReachedOverTCP(t *testing.T) {
	c := startCoturn(t, "--no-udp", "--no-dtls")
	a := c.gateway(t, 0, nil)
	if got := a.allocated(t, nil); got.Transport != relay.TransportTCP { // within 5 s, by the tests in virtual time
		t.Errorf("the transport is %s, want tcp", got.Transport)
	}
	meet(t, a, c.gateway(t, 1, nil))
}

func TestCoturnDeniesPrivatePeers(t *testing.T) {
	c := startCoturn(t, "--denied-peer-ip=10.0.0.0-10.255.255.255", "--denied-peer-ip=192.168.0.0-192.168.255.255")
	g := c.gateway(t, 0, nil)
	a := g.allocated(t, nil)
	private := netip.MustParseAddr("192.168.1.2")
	g.Permit([]netip.Addr{private, edgeAddrs[1]})
	eventually(t, "the denial", func() bool { return g.Status().Denied[private] != "" })
	if why := g.Status().Denied[private]; !strings.Contains(why, "(403)") || !strings.Contains(why, "denied-peer-ip") {
		t.Errorf("the reason is %q", why)
	}
	if err := g.trySend(a.ID, "no", netip.AddrPortFrom(private, 1)); !errors.Is(err, relay.ErrDenied) {
		t.Errorf("sending: %v, want ErrDenied", err)
	}
	conn, err := c.edges[1].ListenUDP(netip.AddrPortFrom(edgeAddrs[1], 7))
	if err != nil {
		t.Fatal(err)
	}
	peer := newSocket(t, conn)
	exchange(t, func(s string) error { return g.trySend(a.ID, s, netip.AddrPortFrom(edgeAddrs[1], 7)) }, peer.others)
}

func TestCoturnDeniesItself(t *testing.T) {
	c := startCoturn(t, "--denied-peer-ip="+coturnAddr.String())
	g := c.gateway(t, 0, nil)
	g.allocated(t, nil)
	eventually(t, "the denial", func() bool {
		return strings.Contains(g.Status().Denied[coturnAddr], "two gateways on it cannot meet by relayed addresses: add allowed-peer-ip=198.51.100.10")
	})
}

// A server behind a 1:1 NAT announces an address that is not its own. Gateways meet at that
// address.
func TestCoturnWithAnExternalAddress(t *testing.T) {
	external := netip.MustParseAddr("203.0.113.77")
	c := startCoturn(t, "--external-ip="+external.String()+"/"+coturnAddr.String())
	a, b := c.gateway(t, 0, nil), c.gateway(t, 1, nil)
	if got := a.allocated(t, nil).Relayed.Addr(); got != external {
		t.Errorf("the relayed address is %v, want the external one", got)
	}
	meet(t, a, b)
}

func TestCoturnRestarts(t *testing.T) {
	for _, name := range []string{relay.TransportUDP, relay.TransportTCP} {
		t.Run(name, func(t *testing.T) {
			c := startCoturn(t)
			a, b := c.gateway(t, 0, transport(name)), c.gateway(t, 1, transport(name))
			meet(t, a, b)
			first, second := a.allocated(t, nil), b.allocated(t, nil)
			c.restart()
			began := time.Now()
			a.Check()
			b.Check()
			a.allocated(t, func(x relay.Allocation) bool { return x.ID != first.ID })
			b.allocated(t, func(x relay.Allocation) bool { return x.ID != second.ID })
			t.Logf("both have new allocations %v after the restart", time.Since(began).Round(time.Millisecond))
			meet(t, a, b)
		})
	}
}

func TestCoturnStaleNonces(t *testing.T) {
	c := startCoturn(t, "--stale-nonce=1")
	a, b := c.gateway(t, 0, nil), c.gateway(t, 1, nil)
	meet(t, a, b)
	first := a.allocated(t, nil)
	for range 3 { // each has a nonce that is too old for the server
		tick := time.NewTimer(2 * time.Second)
		<-tick.C
		a.Check()
		a.Permit([]netip.Addr{edgeAddrs[1]})
		meet(t, a, b)
	}
	if now := a.allocated(t, nil); now != first {
		t.Errorf("the allocation is %+v, want still %+v", now, first)
	}
}

func TestCoturnRefusalsAreNamed(t *testing.T) {
	c := startCoturn(t, "--user-quota=1")
	for _, r := range []struct {
		name string
		edit func(*relay.Server)
		says string
	}{
		{"wrong password", func(s *relay.Server) { s.Password = "wrong" }, `wrong username or password for user "edge" (401)`},
		{"unknown user", func(s *relay.Server) { s.Username = "who" }, `wrong username or password for user "who" (401)`},
		{"expired", func(s *relay.Server) { s.Username = "1600000000:who" }, "the credentials expired at 2020-09-13T12:26:40Z (401)"},
	} {
		t.Run(r.name, func(t *testing.T) {
			g := c.gateway(t, 0, r.edit)
			defer g.stop()
			// A busy server may not answer at first.
			eventually(t, "the status says: "+r.says, func() bool { return strings.Contains(g.Status().Err, r.says) })
		})
	}
	t.Run("quota", func(t *testing.T) {
		c.gateway(t, 0, nil).allocated(t, nil)
		g := c.gateway(t, 1, nil)
		eventually(t, "the status names the quota", func() bool { return strings.Contains(g.Status().Err, "(486): raise user-quota") })
	})
}

// A killed gateway comes back on its port; coturn answers 437.
func TestCoturnAnAllocationFromBeforeARestart(t *testing.T) {
	c := startCoturn(t, "--user-quota=1")
	conn, err := c.edges[0].ListenUDP(netip.AddrPortFrom(edgeAddrs[0], 51820))
	if err != nil {
		t.Fatal(err)
	}
	muted := &mutable{packetConn: conn}
	sock := newSocket(t, muted)
	killed := c.gatewayOn(t, sock, 0, transport(relay.TransportUDP))
	killed.allocated(t, nil)
	muted.mute.Store(true)
	killed.stop()
	muted.mute.Store(false)
	g := c.gatewayOn(t, sock, 0, transport(relay.TransportUDP))
	eventually(t, "an allocation or a failure", func() bool {
		_, ok := g.Allocation()
		return ok || g.Status().Err != ""
	})
	if s := g.Status(); s.Err != "" {
		t.Errorf("no allocation at the first attempt: %s", s.Err)
	}
}

// mutable is a socket that can be muted.
type mutable struct {
	packetConn
	mute atomic.Bool
}

func (m *mutable) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	if m.mute.Load() {
		return len(b), nil
	}
	return m.packetConn.WriteToUDPAddrPort(b, to)
}

// TestCoturnBothRestartAndMeetAgain is TestBothRestartAndMeetAgain with the real server, which is
// stricter about old channels.
func TestCoturnBothRestartAndMeetAgain(t *testing.T) {
	c := startCoturn(t)
	var socks [2]*socket
	var gws [2]*gateway
	var at [2]relay.Allocation
	for i := range gws {
		conn, err := c.edges[i].ListenUDP(netip.AddrPortFrom(edgeAddrs[i], 51820))
		if err != nil {
			t.Fatal(err)
		}
		socks[i] = newSocket(t, conn)
		gws[i] = c.gatewayOn(t, socks[i], i, transport(relay.TransportUDP))
		at[i] = gws[i].allocated(t, nil)
	}
	both := func(s string) error {
		for i, g := range gws {
			if err := g.trySend(at[i].ID, s, at[1-i].Relayed); err != nil {
				return err
			}
		}
		return nil
	}
	for life := range 3 {
		for range 12 { // enough for channels
			exchange(t, both, gws[0].inbox)
			exchange(t, both, gws[1].inbox)
		}
		grants := [2]*relay.Grant{gws[0].grant(t), gws[1].grant(t)}
		for i, g := range gws {
			g.leave()
			drain(g.inbox)
			gws[i] = c.adopting(t, socks[i], i, transport(relay.TransportUDP), grants[i])
		}
		began := time.Now()
		for i, g := range gws {
			before := at[i].Relayed
			if at[i] = g.allocated(t, nil); at[i].Relayed != before {
				t.Errorf("life %d: relayed address %v, want %v as before", life, at[i].Relayed, before)
			}
		}
		exchange(t, both, gws[0].inbox)
		exchange(t, both, gws[1].inbox)
		t.Logf("life %d: both hear each other after %v", life, time.Since(began).Round(time.Millisecond))
	}
}
