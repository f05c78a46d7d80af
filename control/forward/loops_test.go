package forward

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// looped returns a gateway whose service for the peer cloud has one backend: the gateway's own listener
// for a service of the peer other, which leads to an upstream. The network may translate any address
// to that. The gateway's own address may use the listener.
func looped(t *testing.T, protocol api.Protocol, other string) (*gateway, *Outbound) {
	t.Helper()
	g := newGateway(t, Limits{}, nil)
	o := NewOutbound(g.flows, OutboundOptions{
		Dial:  func(ctx context.Context, _ Target) (Conn, error) { return DialUpstream(ctx, other) },
		Find:  func(context.Context, Target) (netip.AddrPort, error) { return netip.AddrPortFrom(otherAddr, 53), nil },
		Admit: func(Local, api.Protocol, netip.AddrPort) error { return nil },
	})
	t.Cleanup(func() {
		o.Close()
		g.stop()
	})
	o.SetLocals([]Local{{Peer: "other", Service: "shop/bank:80", Protocol: protocol}})
	l := o.Locals()[0]
	at, err := api.ParseListen(l.Address)
	if l.Err != nil || err != nil {
		t.Fatal(l.Err, err)
	}
	g.cluster(&pods{ready: []netip.AddrPort{at.At(0)}}, protocol)
	return g, o
}

// What one peer sends does not arrive at another peer, even if the network translates a backend's
// address to a listener of this gateway.
func TestABackendThatIsThisGatewayLeadsToNoPeer(t *testing.T) {
	other, conns := upstream(t)
	g, _ := looped(t, api.TCP, other)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 { // either end may be the first to know
			c := g.dial(cloudAddr, 10000).decided()
			if c == nil {
				continue
			}
			_, _ = io.WriteString(c, "secret") // it may have ended
			_ = c.CloseWrite()
			if got, _ := io.ReadAll(c); len(got) > 0 {
				t.Errorf("the peer got %q", got)
			}
		}
		g.stop()
	}()
	for {
		select {
		case c := <-conns:
			if got, _ := io.ReadAll(c); len(got) > 0 {
				t.Errorf("another peer got %q", got)
			}
			c.Close()
		case <-done:
			return
		}
	}
}

// If the client of a listener has the address that the socket to a backend gets, the flow is refused
// before anything is sent.
func TestDatagramsOfAClientOfThisGatewayLeadNowhere(t *testing.T) {
	up := udpServer(t)
	g := newGateway(t, Limits{}, nil)
	tun := g.attach()
	g.cluster(&pods{ready: []netip.AddrPort{up.LocalAddr().(*net.UDPAddr).AddrPort()}}, api.UDP)
	loops := g.flows.loops
	for port := range 1 << 16 { // it may get any
		e := end{false, true, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))}
		loops.add(e)
		defer loops.remove(e)
	}
	g.datagram(client1, 10000, "secret")
	if p := tun.next(t); !p.refusal {
		t.Errorf("the peer gets %+v, want that it is refused", p)
	}
	if n := g.in.UDPCounters(); n.Accepted != 0 || n.Refused[UpstreamDown] != 1 {
		t.Errorf("counted are %+v", n)
	}
}

func TestDatagramsToThisGatewayLeadToNoPeer(t *testing.T) {
	g, o := looped(t, api.UDP, "")
	tun := g.attach()
	if !g.datagram(client1, 10000, "secret") {
		t.Error("it is refused before it is sent")
	}
	eventually(t, "its end", func() bool { return len(tun.out) > 0 || o.UDPCounters().Refused[NotAdmitted] > 0 })
	if len(tun.out) > 0 {
		t.Errorf("into the tunnel goes %+v", tun.next(t))
	}
}

// client makes a listener of the gateway have a client.
func (g *gateway) client(e end) {
	g.flows.loops.add(e)
	g.t.Cleanup(func() { g.flows.loops.remove(e) })
}

// A program with the gateway's address may by chance have a connection from the port of a socket to a
// backend. Then there is another socket.
func TestAPortOfAClientCostsNoConnection(t *testing.T) {
	up, conns := upstream(t)
	var g *gateway
	chance := sync.OnceFunc(func() {
		c := take(t, conns)
		defer c.Close()
		g.client(end{at: c.RemoteAddr().(*net.TCPAddr).AddrPort()})
	})
	g = newGateway(t, Limits{}, func(ctx context.Context, to string) (Conn, error) {
		c, err := DialUpstream(ctx, to)
		if err == nil {
			chance()
		}
		return c, err
	})
	g.cluster(&pods{ready: []netip.AddrPort{addr(t, up)}}, api.TCP)
	c := g.dial(cloudAddr, 10000).conn()
	send(t, c, "hello")
	wantRead(t, take(t, conns), "hello")
}

// A client of datagrams is remembered after its socket is closed. The gateway's next socket may have
// the same port, and what it sends would count as the client's.
func TestNothingIsSentFromThePortOfAClient(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	g.attach()
	for port := range 1 << 16 {
		g.client(end{udp: true, at: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))})
	}
	backend := udpServer(t)
	g.cluster(&pods{ready: []netip.AddrPort{backend.LocalAddr().(*net.UDPAddr).AddrPort()}}, api.UDP)
	g.datagram(client1, 10000, "secret")
	eventually(t, "the end of the flow", func() bool { return g.in.UDPCounters().Accepted+g.in.UDPCounters().Refused[UpstreamDown] > 0 })
	if n := g.in.UDPCounters().Accepted; n > 0 {
		t.Errorf("%d flows have the address of a client", n)
	}
}
