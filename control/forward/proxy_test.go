package forward

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/patience"
)

// proxied is a server that expects the header. It returns its connections on a channel.
func proxied(t *testing.T) (address string, conns <-chan *proxyproto.Conn) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told := &proxyproto.Listener{Listener: ln, ConnPolicy: func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.REQUIRE, nil }}
	ch, ended := make(chan *proxyproto.Conn, 16), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := told.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience.Left()))
			t.Cleanup(func() { c.Close() })
			ch <- c.(*proxyproto.Conn)
		}
	}()
	t.Cleanup(func() { told.Close(); <-ended })
	return ln.Addr().String(), ch
}

// A server that expects the header gets the peer's address inside the tunnel and its name, before
// anything else.
func TestAServerIsToldWhoConnects(t *testing.T) {
	address, conns := proxied(t)
	g := newGateway(t, Limits{}, nil)
	g.allow["cloud"] = append(g.allow["cloud"], web, "mail")
	g.offer(closedPort(t), Service{Name: "mail", Ports: api.PortsOf(25), Upstream: address, ProxyProtocol: api.ProxyV2})
	p := &pods{ready: []netip.AddrPort{addr(t, closedPort(t)), addr(t, address)}} // the first refuses
	if err := g.in.SetClusterServices(nil, []Service{{Name: web, Ports: api.PortsOf(10000), Backends: p, ProxyProtocol: api.ProxyV2}}); err != nil {
		t.Fatal(err)
	}
	for port, serverSpeaks := range map[uint16]bool{25: true, 10000: false} {
		client := g.dial(cloudAddr, port).conn()
		server := <-conns
		if serverSpeaks {
			send(t, server, "220 hello")
			wantRead(t, client, "220 hello")
		}
		send(t, client, "hello")
		wantRead(t, server, "hello")
		h := server.ProxyHeader()
		if h == nil || h.Version != 2 || h.Command != proxyproto.PROXY || h.TransportProtocol != proxyproto.TCPv6 ||
			h.SourceAddr.String() != netip.AddrPortFrom(cloudAddr, 40000).String() || h.DestinationAddr.String() != netip.AddrPortFrom(ownAddr, port).String() {
			t.Errorf("at port %d it is told %+v", port, h)
			continue
		}
		tlvs, err := h.TLVs()
		if err != nil || len(tlvs) != 1 || tlvs[0].Type != ProxyPeer || string(tlvs[0].Value) != "cloud" {
			t.Errorf("at port %d the fields are %v, %v", port, tlvs, err)
		}
	}
	eventually(t, "what was sent is counted without it", func() bool {
		return !slices.ContainsFunc(g.flows.List("cloud"), func(f api.Flow) bool { return f.RxBytes != 5 })
	})
}

// Whatever the addresses and names, another implementation reads them unchanged.
func TestProxyHeaders(t *testing.T) {
	for _, c := range []struct{ from, to, peer string }{
		{"10.9.0.2:40000", "10.9.0.1:443", "edge"},
		{"[fd00::c]:1", "[fd00::1]:65535", strings.Repeat("x", 63)},
		{"[fd00::c]:1", "[fd00::1]:65535", ""},
	} {
		from, to := netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to)
		here, there := net.Pipe()
		read := proxyproto.NewConn(there)
		go func() {
			_, _ = here.Write(proxyHeader(from, to, c.peer))
			here.Close()
		}()
		h := read.ProxyHeader()
		if h == nil || h.SourceAddr.String() != c.from || h.DestinationAddr.String() != c.to {
			t.Errorf("of %v is read %+v", c, h)
			continue
		}
		if tlvs, err := h.TLVs(); err != nil || len(tlvs) != 1 || string(tlvs[0].Value) != c.peer {
			t.Errorf("of %v are read %v, %v", c, tlvs, err)
		}
	}
}

func TestWhatCannotBeToldWhoConnects(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	for _, s := range []Service{
		{Name: "dns", Ports: port53, Upstream: "127.0.0.1:53", ProxyProtocol: api.ProxyV2},
		{Name: "web", Ports: api.PortsOf(80), Upstream: "127.0.0.1:80", ProxyProtocol: "v1"},
	} {
		if err := g.in.SetServices([]Service{s}); err == nil {
			t.Errorf("%+v is offered", s)
		}
	}
}
