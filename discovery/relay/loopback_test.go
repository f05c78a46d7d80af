package relay_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"hash"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

// loopback is a server on real sockets of this machine. UDP and TCP share a port.
type loopback struct {
	server *turnserver.Server
	plain  netip.AddrPort
	tls    netip.AddrPort
	ca     []byte
}

// certificateName is the name in the server's certificate.
const certificateName = "turn.example.net"

func newLoopback(t testing.TB) *loopback {
	t.Helper()
	l := &loopback{}
	tcp, udp := listenBoth(t)
	l.plain = tcp.Addr().(*net.TCPAddr).AddrPort()
	certificate, ca := certify(t)
	l.ca = ca
	secure := listenTCP(t)
	l.tls = secure.Addr().(*net.TCPAddr).AddrPort()
	server, err := turnserver.Serve(turnserver.Sockets{
		Packets:   []net.PacketConn{udp},
		Streams:   []net.Listener{tcp, tls.NewListener(secure, &tls.Config{Certificates: []tls.Certificate{certificate}})},
		RelayAddr: netip.MustParseAddr("127.0.0.1"),
		ListenRelay: func(port int) (net.PacketConn, error) {
			conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
			if err == nil {
				err = conn.SetReadBuffer(4 << 20)
			}
			return conn, err
		},
	}, turnserver.Options{Users: users})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	l.server = server
	return l
}

// listenBoth listens on a port that is free for TCP and UDP.
func listenBoth(t testing.TB) (tcp net.Listener, udp net.PacketConn) {
	t.Helper()
	for range 50 {
		tcp = listenTCP(t)
		udp, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", tcp.Addr().String())
		if err == nil {
			return tcp, udp
		}
		tcp.Close()
	}
	t.Fatal("no port is free for TCP and UDP")
	return nil, nil
}

func listenTCP(t testing.TB) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// certify returns a self-signed certificate, and its PEM.
func certify(t testing.TB) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test relay"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{certificateName}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// account returns the account over a transport.
func (l *loopback) account(transport string) relay.Server {
	s := relay.Server{Address: l.plain.String(), Username: "edge", Password: "secret", Transport: transport}
	if transport == relay.TransportTLS {
		s.Address, s.ServerName, s.CAData = l.tls.String(), certificateName, l.ca
	}
	return s
}

func realSocket(t testing.TB) *socket {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	return newSocket(t, conn)
}

func TestEveryTransportRelaysBothWays(t *testing.T) {
	for _, transport := range []string{relay.TransportUDP, relay.TransportTCP, relay.TransportTLS} {
		t.Run(transport, func(t *testing.T) {
			l := newLoopback(t)
			g := start(t, relay.Options{Server: l.account(transport), Socket: realSocket(t)})
			a := g.allocated(t, nil)
			if a.Transport != transport || a.Relayed.Addr() != netip.MustParseAddr("127.0.0.1") || a.Mapped.Addr() != a.Relayed.Addr() {
				t.Errorf("the allocation is %+v", a)
			}
			peer := realSocket(t)
			at := peer.LocalAddr().(*net.UDPAddr).AddrPort()
			for range 3 { // first Send indications, then ChannelData
				if d := exchange(t, func(s string) error { return g.trySend(a.ID, s, at) }, peer.others); d.from != a.Relayed {
					t.Errorf("the peer sees %v, want %v", d.from, a.Relayed)
				}
				if d := exchange(t, func(s string) error { return peer.WriteTo([]byte(s), a.Relayed) }, g.inbox); d.from != at {
					t.Errorf("a datagram came from %v, want %v", d.from, at)
				}
			}
			g.stop()
			eventually(t, "the allocation is given back", func() bool { return l.server.Allocations() == 0 })
		})
	}
}

func TestTLSFailuresAreNamed(t *testing.T) {
	l := newLoopback(t)
	for _, c := range []struct {
		name string
		edit func(*relay.Server)
		is   relay.Fault
		says string
	}{
		{"another name", func(s *relay.Server) { s.ServerName = "relay.example.org" }, relay.FaultCertificate, `certificate is for another name than "relay.example.org"`},
		{"an unknown authority", func(s *relay.Server) { s.CAData = nil }, relay.FaultCertificate, "signed by nobody we know"},
		{"no TLS on the port", func(s *relay.Server) { s.Address = l.plain.String() }, relay.FaultSilent, "TLS"},
		{"TLS where there is none to speak to", func(s *relay.Server) { s.Address = "127.0.0.1:1" }, relay.FaultSilent, "refuses TCP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := l.account(relay.TransportTLS)
			c.edit(&server)
			g := start(t, relay.Options{Server: server})
			// A busy server may not answer at first.
			eventually(t, "the status says: "+c.says, func() bool {
				s := g.Status()
				return strings.Contains(s.Err, c.says) && s.Fault == c.is
			})
		})
	}
}

// If UDP and plain TCP are silent, TLS on its own port is used.
func TestWithoutUDPAndTCPItTakesTLS(t *testing.T) {
	l := newLoopback(t)
	server := l.account(relay.TransportTLS)
	server.Transport, server.Address = relay.TransportAuto, "192.0.2.1"
	g := start(t, relay.Options{Server: server, Socket: deafSocket{}, Dial: onlyTLS(t, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.tls.String())
	})})
	if a := g.allocated(t, nil); a.Transport != "tls" {
		t.Errorf("an allocation over %s, want one over tls", a.Transport)
	}
	if why := g.Status().Fallback; !strings.Contains(why, "udp: no answer over UDP") || !strings.Contains(why, "tcp: no answer over TCP") {
		t.Errorf("the reasons for TLS are %q", why)
	}
}

func TestWithoutUDPAndTCPItTriesTLSWithinFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := account
		server.Transport, server.Address = relay.TransportAuto, "192.0.2.1"
		began, tried := time.Now(), make(chan time.Time, 16)
		start(t, relay.Options{Server: server, Socket: deafSocket{}, Dial: onlyTLS(t, func(context.Context) (net.Conn, error) {
			tried <- time.Now()
			return nil, errors.New("no server")
		})})
		if took := (<-tried).Sub(began); took > 5*time.Second {
			t.Errorf("TLS was tried after %v, want it within 5 s", took)
		}
	})
}

// onlyTLS dials like from behind a firewall that drops TURN over plain TCP to 192.0.2.1.
func onlyTLS(t *testing.T, dial func(context.Context) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		switch address {
		case "192.0.2.1:3478":
			<-ctx.Done()
			return nil, ctx.Err()
		case "192.0.2.1:5349":
			return dial(ctx)
		}
		t.Errorf("it dials %s", address)
		return nil, errors.New("nobody is there")
	}
}

// deafSocket sends and receives nothing.
type deafSocket struct{}

func (deafSocket) WriteTo([]byte, netip.AddrPort) error { return nil }

func (deafSocket) AddServer(netip.AddrPort, func([]byte) bool) func() { return func() {} }

// 100 MB in numbered datagrams of full tunnel packets, through two allocations. The receiver
// acknowledges every window, since UDP has no flow control.
func TestAHundredMegabytesPassBitExactAndInOrder(t *testing.T) {
	const (
		size   = 1452
		count  = bulk/size + 1
		window = 24 // twice that fits into a socket's buffer of 208 KB, with the kernel's overhead
	)
	for _, transport := range []string{relay.TransportUDP, relay.TransportTCP} {
		t.Run(transport, func(t *testing.T) {
			l := newLoopback(t)
			from := start(t, relay.Options{Server: l.account(transport), Socket: realSocket(t)})
			to := start(t, relay.Options{Server: l.account(transport), Socket: realSocket(t)})
			near, far := from.allocated(t, nil), to.allocated(t, nil)
			// Beyond the first datagrams, which may precede permission and channel.
			exchange(t, func(s string) error { return from.trySend(near.ID, s, far.Relayed) }, to.inbox)
			exchange(t, func(s string) error { return to.trySend(far.ID, s, near.Relayed) }, from.inbox)

			ended := make(chan string, 1)
			acks := make(chan int, count)
			received := sha256.New()
			go func() { ended <- collect(to, count, window, size, received, acks) }()
			sent := sha256.New()
			random := mathrand.NewChaCha8([32]byte{1})
			packet := make([]byte, size)
			timeout := time.After(patience)
			for n := range count {
				if n%window == 0 && n >= 2*window {
					select {
					case <-acks:
					case wrong := <-ended:
						t.Fatal(wrong)
					case <-timeout:
						t.Fatalf("stuck at datagram %d; %+v, %+v", n, from.Status().Traffic, to.Status().Traffic)
					}
				}
				_, _ = random.Read(packet)
				binary.BigEndian.PutUint64(packet, uint64(n))
				sent.Write(packet)
				if err := from.trySend(near.ID, string(packet), far.Relayed); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case wrong := <-ended:
				if wrong != "" {
					t.Fatal(wrong)
				}
			case <-timeout:
				t.Fatalf("the end is missing; %+v, %+v", from.Status().Traffic, to.Status().Traffic)
			}
			if string(sent.Sum(nil)) != string(received.Sum(nil)) {
				t.Error("what arrived isn't what was sent")
			}
		})
	}
}

// collect receives numbered datagrams and says what is wrong with them; "" = nothing.
func collect(g *gateway, count, window, size int, sum hash.Hash, acks chan<- int) string {
	for n := 0; n < count; n++ {
		var d datagram
		select {
		case d = <-g.inbox:
		case <-time.After(patience):
			return "the datagrams stop"
		}
		if n == 0 && strings.HasPrefix(string(d.b), "exchange ") {
			n-- // sent more often than needed
			continue
		}
		if len(d.b) != size {
			return "a datagram of another size"
		}
		if got := binary.BigEndian.Uint64(d.b); got != uint64(n) {
			return "a datagram is missing or out of order"
		}
		sum.Write(d.b)
		if n%window == window-1 {
			acks <- n
		}
	}
	return ""
}

func drain(c chan datagram) {
	for {
		select {
		case <-c:
		default:
			return
		}
	}
}
