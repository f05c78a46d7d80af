package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/patience"
)

// passed is a datagram, or a refusal, that went into the tunnel.
type passed struct {
	from, to netip.AddrPort
	payload  string
	refusal  bool
}

// tunnel is the other end of the tunnel.
type tunnel struct{ out chan passed }

func (t *tunnel) SendUDP(from, to netip.AddrPort, payload []byte) error {
	if len(payload) > 65527 {
		return syscall.EMSGSIZE
	}
	t.out <- passed{from, to, string(payload), false}
	return nil
}

func (t *tunnel) RefuseUDP(local, remote netip.AddrPort) { t.out <- passed{local, remote, "", true} }

// next waits for the next datagram or refusal into the tunnel.
func (t *tunnel) next(tb testing.TB) passed {
	tb.Helper()
	select {
	case p := <-t.out:
		return p
	case <-time.After(patience.Left()):
		tb.Fatal("nothing goes into the tunnel")
		return passed{}
	}
}

// attach gives a gateway a tunnel.
func (g *gateway) attach() *tunnel {
	t := &tunnel{make(chan passed, 1024)}
	g.flows.Attach(t, ownAddr)
	return t
}

// datagram sends a datagram from a peer to a port.
func (g *gateway) datagram(from netip.AddrPort, port uint16, payload string) bool {
	return g.in.Datagram(from, netip.AddrPortFrom(ownAddr, port), []byte(payload))
}

// udpServer returns a socket on loopback.
func udpServer(t testing.TB) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience.Left()))
	t.Cleanup(func() { c.Close() })
	return c
}

// udpServers listens on consecutive ports.
func udpServers(t testing.TB, n int) []*net.UDPConn {
	t.Helper()
	for range 100 {
		all := []*net.UDPConn{udpServer(t)}
		for len(all) < n {
			at := *all[0].LocalAddr().(*net.UDPAddr)
			at.Port += len(all)
			c, err := net.ListenUDP("udp", &at)
			if err != nil {
				break // taken: try others
			}
			_ = c.SetDeadline(time.Now().Add(patience.Left()))
			t.Cleanup(func() { c.Close() })
			all = append(all, c)
		}
		if len(all) == n {
			return all
		}
	}
	t.Fatalf("no %d UDP ports in a row are free", n)
	return nil
}

// readFrom waits for a datagram.
func readFrom(t testing.TB, c *net.UDPConn) (string, netip.AddrPort) {
	t.Helper()
	b := make([]byte, 1<<16)
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n]), from
}

// answer sends a datagram back.
func answer(t testing.TB, c *net.UDPConn, to netip.AddrPort, payload string) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort([]byte(payload), to); err != nil {
		t.Fatal(err)
	}
}

var (
	client1 = netip.AddrPortFrom(cloudAddr, 4001)
	client2 = netip.AddrPortFrom(cloudAddr, 4002)
)

// dns offers a UDP service that cloud may reach.
func (g *gateway) dns(upstream string, ports api.Ports) {
	g.t.Helper()
	g.allow["cloud"] = append(g.allow["cloud"], "dns")
	g.offer("127.0.0.1:1", Service{Name: "dns", Ports: ports, Upstream: upstream})
}

var port53 = api.Ports{Protocol: api.UDP, First: 53, Last: 53}

func TestDatagramsOfEachClientHaveAFlow(t *testing.T) {
	g, up := newGateway(t, Limits{}, nil), udpServer(t)
	tun := g.attach()
	g.dns(up.LocalAddr().String(), port53)
	froms := map[netip.AddrPort]netip.AddrPort{}
	for _, c := range []netip.AddrPort{client1, client2} {
		for i := range 3 {
			question := fmt.Sprint(c, i)
			if !g.datagram(c, 53, question) {
				t.Fatalf("%s was refused", question)
			}
			got, from := readFrom(t, up)
			if got != question {
				t.Fatalf("%q arrives as %q", question, got)
			}
			if before := froms[c]; before.IsValid() && before != from {
				t.Errorf("%v comes from %v and then from %v", c, before, from)
			}
			froms[c] = from
			answer(t, up, from, "re "+question)
			if p := tun.next(t); p != (passed{netip.AddrPortFrom(ownAddr, 53), c, "re " + question, false}) {
				t.Fatalf("the answer is %+v", p)
			}
		}
	}
	if froms[client1] == froms[client2] {
		t.Error("two clients share a flow")
	}
	eventually(t, "the opening of both", func() bool { return g.in.UDPCounters().Accepted == 2 })
	flows := g.flows.List("cloud")
	if len(flows) != 2 || g.flows.UDPFlows("cloud") != 2 || g.flows.UDPCount()[DirectionInbound] != 2 {
		t.Fatalf("there are %+v", flows)
	}
	f := flows[slices.IndexFunc(flows, func(f api.Flow) bool { return f.Remote == client1.String() })]
	n := uint64(3 * len(fmt.Sprint(client1, 0)))
	if f.Protocol != api.UDP || f.Service != "dns" || f.Direction != DirectionInbound || f.RxBytes != n || f.TxBytes != n+9 {
		t.Errorf("a flow is shown as %+v", f)
	}
	if c := g.flows.Carried()["cloud"]; c.Flows != 2 || c.Bytes != 2*(2*n+9) {
		t.Errorf("carried are %+v", c)
	}
	if len(g.flows.List("other")) != 0 {
		t.Error("another peer has flows")
	}
	for _, what := range []string{"connect", "protocol=UDP", "service=dns"} {
		eventually(t, what+" in the audit log", func() bool { return strings.Contains(g.log.String(), what) })
	}
}

func TestPortsOfARangeLeadToThoseThatFollow(t *testing.T) {
	servers := udpServers(t, 2)
	first, second := servers[0], servers[1]
	at := first.LocalAddr().(*net.UDPAddr).AddrPort()
	g := newGateway(t, Limits{}, nil)
	g.attach()
	g.dns(at.String(), api.Ports{Protocol: api.UDP, First: 5000, Last: 5001})
	for port, c := range map[uint16]*net.UDPConn{5000: first, 5001: second} {
		if !g.datagram(client1, port, "x") {
			t.Fatalf("port %d was refused", port)
		}
		if got, _ := readFrom(t, c); got != "x" {
			t.Errorf("port %d: got %q", port, got)
		}
	}
	if g.datagram(client1, 5002, "x") {
		t.Error("a port behind the range leads somewhere")
	}
}

func TestDatagramsThatAreNotGrantedAreRefused(t *testing.T) {
	g, up := newGateway(t, Limits{}, nil), udpServer(t)
	g.attach()
	g.dns(up.LocalAddr().String(), port53)
	for what, c := range map[Reason]struct {
		from netip.Addr
		port uint16
	}{
		UnknownPeer: {netip.MustParseAddr("fd00::99"), 53},
		NotGranted:  {otherAddr, 53},
		NoService:   {cloudAddr, 5000}, // of TCP
	} {
		if g.datagram(netip.AddrPortFrom(c.from, 4000), c.port, "x") {
			t.Errorf("%s: was taken", what)
		}
		if n := g.in.UDPCounters().Refused[what]; n != 1 {
			t.Errorf("%s: counted %d times", what, n)
		}
	}
	if g.datagram(netip.AddrPortFrom(ticketAddr, 4000), 53, "x") {
		t.Error("a one-time key reaches a service")
	}
	if n := g.flows.UDPCount()[DirectionInbound]; n != 0 {
		t.Errorf("%d flows are there", n)
	}
}

func TestFlowsEndWithWhatAllowedThem(t *testing.T) {
	for what, end := range map[string]func(*gateway){
		"the peer is gone": func(g *gateway) {
			g.mu.Lock()
			delete(g.peers, cloudAddr)
			g.mu.Unlock()
			g.flows.ClosePeer("cloud")
		},
		"the grant is gone": func(g *gateway) {
			g.mu.Lock()
			g.allow["cloud"] = nil
			g.mu.Unlock()
			g.in.Reauthorize()
		},
		"the service is gone": func(g *gateway) { g.offer("127.0.0.1:1") },
	} {
		t.Run(what, func(t *testing.T) {
			g, up := newGateway(t, Limits{}, nil), udpServer(t)
			g.attach()
			g.dns(up.LocalAddr().String(), port53)
			g.datagram(client1, 53, "x")
			_, from := readFrom(t, up)
			end(g)
			if g.datagram(client1, 53, "x") || g.flows.UDPFlows("cloud") != 0 {
				t.Error("the flow goes on")
			}
			wantFree(t, from)
		})
	}
}

// wantFree checks that the socket of a flow is closed: its address can be bound.
func wantFree(t *testing.T, at netip.AddrPort) {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Errorf("the socket of an ended flow is open: %v", err)
		return
	}
	c.Close()
}

func TestAnUpstreamThatRefusesIsToldOf(t *testing.T) {
	gone := udpServer(t)
	address := gone.LocalAddr().String()
	gone.Close()
	g := newGateway(t, Limits{}, nil)
	tun := g.attach()
	g.dns(address, port53)
	if !g.datagram(client1, 53, "x") {
		t.Fatal("refused before anything was known")
	}
	if p := tun.next(t); p != (passed{netip.AddrPortFrom(ownAddr, 53), client1, "", true}) {
		t.Errorf("the peer is told %+v", p)
	}
	eventually(t, "a count and a warning", func() bool {
		return g.in.UDPCounters().Refused[UpstreamDown] == 1 && strings.Contains(g.log.String(), "PST0310")
	})
	if n := g.flows.UDPFlows("cloud"); n != 0 {
		t.Errorf("%d flows are left", n)
	}
}

func TestAPeerThatRefusesEndsItsFlow(t *testing.T) {
	g, up := newGateway(t, Limits{}, nil), udpServer(t)
	g.attach()
	g.dns(up.LocalAddr().String(), port53)
	g.datagram(client1, 53, "x")
	_, from := readFrom(t, up)
	g.flows.PeerRefused(client2, netip.AddrPortFrom(ownAddr, 53))
	if n := g.flows.UDPFlows("cloud"); n != 1 {
		t.Errorf("another's refusal leaves %d flows", n)
	}
	g.flows.PeerRefused(client1, netip.AddrPortFrom(ownAddr, 53))
	if n := g.flows.UDPFlows("cloud"); n != 0 {
		t.Errorf("%d flows are left", n)
	}
	wantFree(t, from)
}

func TestFlowsEndWhenNobodySpeaks(t *testing.T) {
	g, up := newGateway(t, Limits{}, nil), udpServer(t)
	tun := g.attach()
	g.dns(up.LocalAddr().String(), port53)
	rounds := func(c netip.AddrPort, questions, answers int) {
		var from netip.AddrPort
		for i := range questions {
			g.datagram(c, 53, "q")
			if _, from = readFrom(t, up); i < answers {
				answer(t, up, from, "a")
				tun.next(t)
			}
		}
	}
	left := func(after time.Duration) []string {
		g.flows.udp.endIdle(time.Now().Add(after))
		var out []string
		for _, f := range g.flows.List("cloud") {
			out = append(out, f.Remote)
		}
		slices.Sort(out)
		return out
	}
	asked, once, talks := netip.AddrPortFrom(cloudAddr, 1), netip.AddrPortFrom(cloudAddr, 2), netip.AddrPortFrom(cloudAddr, 3)
	rounds(asked, 3, 0)
	rounds(once, 1, 1)
	rounds(talks, 2, 1)
	if got := left(idleAsked / 2); len(got) != 3 { // the rounds take some time as well
		t.Errorf("after less than %v: %v", idleAsked, got)
	}
	if got := left(idleAsked); !slices.Equal(got, []string{talks.String()}) {
		t.Errorf("after %v: %v", idleAsked, got)
	}
	if got := left(idleTalking); len(got) != 0 {
		t.Errorf("after %v: %v", idleTalking, got)
	}
	if !strings.Contains(g.log.String(), "disconnect") {
		t.Errorf("the audit log has no disconnect:\n%s", g.log)
	}
}

func TestAPeerCannotTakeAllFlows(t *testing.T) {
	up := udpServer(t)
	g := newGateway(t, Limits{UDPFlows: 40, PeerUDPFlows: 30, Reserve: 3}, nil)
	g.attach()
	g.dns(up.LocalAddr().String(), port53)
	g.allow["other"] = append(g.allow["other"], "dns")
	taken := func(a netip.Addr) (n int) {
		for n < 100 && g.datagram(netip.AddrPortFrom(a, uint16(4000+n)), 53, "x") {
			n++
		}
		return n
	}
	if n := taken(cloudAddr); n != 30 {
		t.Errorf("a peer alone has %d flows, want 30", n)
	}
	if n := taken(otherAddr); n != 10 {
		t.Errorf("another has %d flows, want what is left of 40", n)
	}
	if r := g.in.UDPCounters().Refused; r[PeerFlowLimit] != 1 || r[TotalFlowLimit] != 1 {
		t.Errorf("counted are %v", r)
	}
	g.flows.ClosePeer("other")
	g.flows.udp.mu.Lock()
	g.flows.udp.bounds.total = 30 // all are taken
	g.flows.udp.mu.Unlock()
	if n := taken(otherAddr); n != 3 {
		t.Errorf("when all are taken, another has %d flows, want its reserve of 3", n)
	}
	for range 30 + 3 { // those that are there are not disturbed
		readFrom(t, up)
	}
	if !g.datagram(netip.AddrPortFrom(cloudAddr, 4000), 53, "still") {
		t.Error("an open flow was refused")
	}
}

// Inbound flows, which have sockets, have bounds of their own, and take their part of the total.
func TestInboundFlowsHaveBounds(t *testing.T) {
	up := udpServer(t)
	g := newGateway(t, Limits{UDPFlows: 40, PeerUDPFlows: 30, InboundUDPFlows: 15, Reserve: 1}, nil)
	g.attach()
	g.dns(up.LocalAddr().String(), port53)
	g.allow["other"] = append(g.allow["other"], "dns")
	taken := func(a netip.Addr) (n int) {
		for n < 100 && g.datagram(netip.AddrPortFrom(a, uint16(4000+n)), 53, "x") {
			n++
		}
		return n
	}
	if a, b := taken(cloudAddr), taken(otherAddr); a != 8 || b != 7 {
		t.Errorf("two peers have %d and %d flows, want half of 15 and the rest", a, b)
	}
	if r := g.in.UDPCounters().Refused; r[PeerFlowLimit] != 1 || r[TotalFlowLimit] != 1 {
		t.Errorf("counted are %v", r)
	}
	if s := g.log.String(); !strings.Contains(s, "peers have 15 flows of datagrams") || !strings.Contains(s, "LimitNOFILE") {
		t.Errorf("the limit of files is not named:\n%s", s)
	}
	o := NewOutbound(g.flows, OutboundOptions{Find: func(context.Context, Target) (netip.AddrPort, error) {
		return netip.AddrPortFrom(cloudAddr, 53), nil
	}})
	defer o.Close()
	o.SetLocals([]Local{{Peer: "cloud", Service: "dns", Address: "127.0.0.1:0/UDP"}})
	e, loopback := o.ear(t, "cloud"), netip.MustParseAddr("127.0.0.1")
	for i := range 40 {
		e.datagram(netip.AddrPortFrom(loopback, uint16(4000+i)), []byte("x"))
	}
	if n := g.flows.UDPCount()[DirectionOutbound]; n != 40-15 {
		t.Errorf("%d outbound flows, want what is left of 40", n)
	}
	if r := o.UDPCounters().Refused; r[TotalFlowLimit] != 15 {
		t.Errorf("counted are %v", r)
	}
	g.flows.ClosePeer("other")
	for i := range 7 { // outbound ones take the places
		e.datagram(netip.AddrPortFrom(loopback, uint16(5000+i)), []byte("x"))
	}
	if n := taken(otherAddr); n != 40-30-8 {
		t.Errorf("a peer has %d flows, want what 30 outbound ones and 8 inbound ones leave of 40", n)
	}
	if s := g.log.String(); !strings.Contains(s, "40 connections are open through this gateway, the most it may carry") {
		t.Errorf("the limit of all flows is not named:\n%s", s)
	}
	g.flows.ClosePeer("other")
	g.flows.ClosePeer("cloud")
	if a, b := taken(cloudAddr), taken(otherAddr); a+b != 15 {
		t.Errorf("when all flows have ended, two peers have %d and %d flows, want 15 together", a, b)
	}
}

// newUDPOutbound returns a gateway with listeners for UDP services of cloud.
func newUDPOutbound(t *testing.T, find func(context.Context, Target) (netip.AddrPort, error), at ...string) (*Outbound, *gateway, *tunnel) {
	t.Helper()
	g := newGateway(t, Limits{}, nil)
	tun := g.attach()
	if find == nil {
		find = func(_ context.Context, to Target) (netip.AddrPort, error) {
			return netip.AddrPortFrom(cloudAddr, 53+uint16(to.Nth)), nil
		}
	}
	o := NewOutbound(g.flows, OutboundOptions{Find: find, Dial: func(context.Context, Target) (Conn, error) {
		return nil, errors.New("not TCP")
	}})
	t.Cleanup(o.Close)
	var want []Local
	for i, a := range at {
		want = append(want, Local{Peer: "cloud", Service: fmt.Sprintf("dns%d", i), Address: a})
	}
	o.SetLocals(want)
	for _, l := range o.Locals() {
		if l.Err != nil {
			t.Fatal(l.Err)
		}
	}
	return o, g, tun
}

// dialLocal dials a port of a listener.
func dialLocal(t *testing.T, address string, nth int) *net.UDPConn {
	t.Helper()
	l, err := api.ParseListen(address)
	if err != nil || l.Protocol != api.UDP {
		t.Fatalf("the listener is at %s (%v)", address, err)
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(l.At(nth)))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience.Left()))
	t.Cleanup(func() { c.Close() })
	return c
}

func TestLocalDatagramsGoToThePeer(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		t.Run(host, func(t *testing.T) {
			o, g, tun := newUDPOutbound(t, nil, host+":0/UDP")
			address := o.Locals()[0].Address
			ports := map[uint16]bool{}
			for range 2 {
				c := dialLocal(t, address, 0)
				for i := range 3 {
					text := fmt.Sprint("question ", i)
					if _, err := c.Write([]byte(text)); err != nil {
						t.Fatal(err)
					}
					p := tun.next(t)
					if p.to != netip.AddrPortFrom(cloudAddr, 53) || p.from.Addr() != ownAddr || p.payload != text {
						t.Fatalf("into the tunnel goes %+v", p)
					}
					ports[p.from.Port()] = true
					if !g.in.Datagram(p.to, p.from, []byte("re "+text)) {
						t.Fatal("the answer was refused")
					}
					b := make([]byte, 100)
					if n, err := c.Read(b); err != nil || string(b[:n]) != "re "+text {
						t.Fatalf("the answer is %q, %v", b[:n], err)
					}
				}
			}
			eventually(t, "the count of both", func() bool { return o.UDPCounters().Accepted == 2 })
			if len(ports) != 2 || g.flows.UDPCount()[DirectionOutbound] != 2 {
				t.Errorf("two clients have the ports %v", ports)
			}
			// Nobody but the peer's service is in the flow.
			for port := range ports {
				if g.in.Datagram(netip.AddrPortFrom(otherAddr, 53), netip.AddrPortFrom(ownAddr, port), []byte("forged")) {
					t.Error("another peer speaks in a flow")
				}
			}
			o.SetLocals(nil)
			if n := g.flows.UDPFlows("cloud"); n != 0 {
				t.Errorf("%d flows are left without a listener", n)
			}
		})
	}
}

// A listener whose datagrams the peer refuses says so until some are answered.
func TestAListenerOfDatagramsKnowsWhetherTheyArrive(t *testing.T) {
	o, g, tun := newUDPOutbound(t, nil, "127.0.0.1:0/UDP")
	c := dialLocal(t, o.Locals()[0].Address, 0)
	ask := func() passed {
		t.Helper()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		return tun.next(t)
	}
	for range 2 {
		p := ask()
		g.flows.PeerRefused(p.to, p.from)
		if l := o.Locals()[0]; !errors.Is(l.Lost, syscall.ECONNREFUSED) || l.LostAt.IsZero() {
			t.Errorf("after a refusal it is lost for %v, at %v", l.Lost, l.LostAt)
		}
	}
	if n := o.UDPCounters().Refused[PeerDown]; n != 2 {
		t.Errorf("%d refusals are counted", n)
	}
	p := ask()
	if !g.in.Datagram(p.to, p.from, []byte("re x")) {
		t.Fatal("the answer was refused")
	}
	if l := o.Locals()[0]; l.Lost != nil {
		t.Errorf("after an answer it is lost for %v", l.Lost)
	}
	g.flows.PeerRefused(p.to, p.from)
	if l := o.Locals()[0]; l.Lost != nil {
		t.Errorf("the end of a conversation is lost for %v", l.Lost)
	}
	p = ask()
	for range 2 { // the second answer is to a flow that was answered before the loss
		if !g.in.Datagram(p.to, p.from, []byte("re x")) {
			t.Fatal("the answer was refused")
		}
		if l := o.Locals()[0]; l.Lost != nil {
			t.Errorf("after an answer it is lost for %v", l.Lost)
		}
		other := dialLocal(t, o.Locals()[0].Address, 0)
		if _, err := other.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		q := tun.next(t)
		g.flows.PeerRefused(q.to, q.from)
		if l := o.Locals()[0]; l.Lost == nil {
			t.Error("after the refusal of another flow it is not lost")
		}
	}
}

// A service that answers nothing works if datagrams to it are not refused for a while.
func TestDatagramsThatAreNotRefusedArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flows, tun := NewFlows(Limits{}), &tunnel{make(chan passed, 8)}
		flows.Attach(tun, ownAddr)
		defer flows.udp.close()
		o := NewOutbound(flows, OutboundOptions{Find: func(context.Context, Target) (netip.AddrPort, error) { return netip.AddrPortFrom(cloudAddr, 514), nil }})
		w := Local{Peer: "cloud", Service: "syslog"}
		l := &local{out: o, want: w}
		o.locals[localKey{w.Peer, w.Service}] = l
		e := &udpEar{local: l, clients: map[netip.AddrPort]*udpClient{}}
		say := func(client uint16) passed {
			e.datagram(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), client), []byte("<13>x"))
			synctest.Wait()
			return <-tun.out
		}
		refuse := func(p passed) { flows.PeerRefused(p.to, p.from) }
		after := func(d time.Duration, what string, lost bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if err := l.state().Lost; (err != nil) != lost {
				t.Errorf("%s, it is lost for %v, want lost: %v", what, err, lost)
			}
		}
		refuse(say(1))
		after(2*unrefusedFor, "when nothing is sent", true)
		p := say(1)
		after(unrefusedFor/2, "at first", true)
		refuse(p)
		after(unrefusedFor, "after a late refusal", true)
		say(1)
		after(unrefusedFor/2, "with another client", true)
		refuse(say(2))
		after(unrefusedFor, "when the other was refused", true)
		say(2)
		after(unrefusedFor-1, "soon after that", true)
		after(1, "when nothing is refused", false)
		refuse(say(3))
		after(2*unrefusedFor, "when an earlier flow is silent", true)
		say(2)
		after(unrefusedFor-1, "soon after an earlier flow has sent", true)
		say(2)
		after(1, "when an earlier flow is not refused", false)
	})
}

func TestARangeOfListeners(t *testing.T) {
	servers := udpServers(t, 3)
	port := servers[0].LocalAddr().(*net.UDPAddr).Port
	for _, c := range servers {
		c.Close()
	}
	at := fmt.Sprintf("127.0.0.1:%d-%d/UDP", port, port+2)
	g := newGateway(t, Limits{}, nil)
	tun := g.attach()
	o := NewOutbound(g.flows, OutboundOptions{Find: func(_ context.Context, to Target) (netip.AddrPort, error) {
		nth := to.Nth
		return netip.AddrPortFrom(cloudAddr, uint16(5000+nth)), nil
	}})
	defer o.Close()
	o.SetLocals([]Local{{Peer: "cloud", Service: "media", Address: at}})
	if l := o.Locals()[0]; l.Err != nil || l.Address != at {
		t.Fatalf("the listener is at %s, %v", l.Address, l.Err)
	}
	for nth := range 3 {
		if _, err := dialLocal(t, at, nth).Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if p := tun.next(t); p.to.Port() != uint16(5000+nth) {
			t.Errorf("port %d leads to %v", nth, p.to)
		}
	}
}

// A program that has ended is noticed by the kernel's answer, and the peer is notified.
func TestALocalClientThatHasGoneIsToldOf(t *testing.T) {
	o, g, tun := newUDPOutbound(t, nil, "127.0.0.1:0/UDP")
	address := o.Locals()[0].Address
	stays, goes := dialLocal(t, address, 0), dialLocal(t, address, 0)
	for _, c := range []*net.UDPConn{stays, goes} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	a, b := tun.next(t), tun.next(t)
	goes.Close()
	for _, p := range []passed{a, b} {
		g.in.Datagram(p.to, p.from, []byte("re"))
	}
	p := tun.next(t)
	if !p.refusal || p.from != a.from && p.from != b.from || p.to != a.to {
		t.Errorf("the peer is told %+v", p)
	}
	if n, err := stays.Read(make([]byte, 10)); err != nil || n != 2 {
		t.Errorf("the other client reads %d bytes, %v", n, err)
	}
	if n := g.flows.UDPFlows("cloud"); n != 1 {
		t.Errorf("%d flows are left, want the other client's", n)
	}
}

// Until a flow's destination is known, some of its datagrams wait, without delaying others.
func TestAFlowThatIsBeingOpenedHoldsUpNobody(t *testing.T) {
	found := make(chan struct{})
	o, g, tun := newUDPOutbound(t, func(ctx context.Context, to Target) (netip.AddrPort, error) {
		if to.Service == "dns0" {
			select {
			case <-found:
			case <-ctx.Done():
				return netip.AddrPort{}, ctx.Err()
			}
		}
		return netip.AddrPortFrom(cloudAddr, 53), nil
	}, "127.0.0.1:0/UDP", "127.0.0.1:0/UDP")
	locals := o.Locals()
	slow, fast := dialLocal(t, locals[0].Address, 0), dialLocal(t, locals[1].Address, 0)
	for i := range 2 * maxWaiting {
		if _, err := slow.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a drop", func() bool { return g.flows.Dropped()[NoRoom] == maxWaiting })
	if _, err := fast.Write([]byte("fast")); err != nil {
		t.Fatal(err)
	}
	if p := tun.next(t); p.payload != "fast" {
		t.Errorf("first comes %+v", p)
	}
	close(found)
	for i := range maxWaiting {
		if p := tun.next(t); p.payload != string([]byte{byte(i)}) {
			t.Errorf("datagram %d is %+v", i, p)
		}
	}
}

func TestAServiceThatIsNotFoundEndsAFlow(t *testing.T) {
	o, g, _ := newUDPOutbound(t, func(context.Context, Target) (netip.AddrPort, error) {
		return netip.AddrPort{}, errors.New("peer cloud does not offer it")
	}, "127.0.0.1:0/UDP")
	if _, err := dialLocal(t, o.Locals()[0].Address, 0).Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a count", func() bool { return o.UDPCounters().Refused[PeerDown] == 1 })
	if n := g.flows.UDPFlows("cloud"); n != 0 {
		t.Errorf("%d flows are left", n)
	}
}

// A hundred thousand flows exist, in as much memory as documented. One more is refused, and the
// existing ones continue. Idle ones give back their places and their memory.
func TestAHundredThousandFlows(t *testing.T) {
	const total, reserve = 100_000, 1
	g := newGateway(t, Limits{UDPFlows: total, PeerUDPFlows: total / 2, Reserve: reserve}, nil)
	tun := &counting{}
	g.flows.Attach(tun, ownAddr)
	// On a busy machine the first ones would be idle for so long that they would end before the
	// last is opened.
	g.flows.udp.sweeper = time.NewTimer(0)
	o := NewOutbound(g.flows, OutboundOptions{Find: func(_ context.Context, to Target) (netip.AddrPort, error) {
		return netip.AddrPortFrom(map[string]netip.Addr{"cloud": cloudAddr, "other": otherAddr, "third": ticketAddr}[to.Peer], 53), nil
	}})
	defer o.Close()
	var locals []Local
	for _, peer := range []string{"cloud", "other", "third"} {
		locals = append(locals, Local{Peer: peer, Service: "dns", Address: "127.0.0.1:0/UDP"})
	}
	o.SetLocals(locals)
	empty := heap()
	for _, peer := range []string{"cloud", "other"} {
		e := o.ear(t, peer)
		for i := range total/2 + 1 {
			from := netip.AddrFrom4([4]byte{10, byte(i >> 12), byte(i >> 4), 1})
			if i >= total/2-16 { // the last places are for clients that have few
				from = netip.AddrFrom4([4]byte{10, 255, byte(i), 1})
			}
			e.datagram(netip.AddrPortFrom(from, uint16(1000+i%16)), []byte("x"))
			if i%(udpHalfOpen/2) == 0 {
				eventually(t, "the opening of flows", func() bool {
					return o.UDPCounters().Accepted+uint64(udpHalfOpen/4) > uint64(g.flows.UDPCount()[DirectionOutbound])
				})
			}
		}
	}
	eventually(t, "the opening of all flows", func() bool { return o.UDPCounters().Accepted == total })
	if n := o.UDPCounters().Refused[PeerFlowLimit]; n != 2 {
		t.Errorf("%d flows beyond the peers' share were refused, want 2", n)
	}
	full := heap()
	if each := (full - empty) / total; each > udpOwnMemory {
		t.Errorf("a flow takes %d bytes, more than %d", each, udpOwnMemory)
	}
	for i := range reserve + 2 {
		o.ear(t, "third").datagram(netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(2000+i)), []byte("x"))
	}
	eventually(t, "the opening of those that are reserved", func() bool { return o.UDPCounters().Accepted == total+reserve })
	if n := o.UDPCounters().Refused[TotalFlowLimit]; n != 2 {
		t.Errorf("when all are taken %d of a third peer were refused, want 2", n)
	}
	e := o.ear(t, "cloud")
	before := tun.sent()
	e.datagram(netip.MustParseAddrPort("10.0.0.1:1000"), []byte("still there"))
	if tun.sent() != before+1 {
		t.Error("an open flow is disturbed")
	}
	if n := len(g.flows.List("cloud")); n != maxListed {
		t.Errorf("%d flows are listed, want %d", n, maxListed)
	}
	if n := g.flows.ClosePeer("cloud"); n != total/2 {
		t.Errorf("%d flows of a peer were ended", n)
	}
	g.flows.udp.endIdle(time.Now().Add(idleAsked))
	if n := g.flows.UDPCount()[DirectionOutbound]; n != 0 {
		t.Errorf("%d flows are there after %s", n, idleAsked)
	}
	left := (heap() - empty) / total
	t.Logf("a flow takes %d bytes, and leaves %d", (full-empty)/total, left)
	if left > udpOwnMemory/4 {
		t.Errorf("a flow that has ended takes %d bytes", left)
	}
}

// counting is a tunnel that counts datagrams.
type counting struct {
	mu sync.Mutex
	n  int
}

func (c *counting) SendUDP(_, _ netip.AddrPort, _ []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return nil
}

func (*counting) RefuseUDP(_, _ netip.AddrPort) {}

func (c *counting) sent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// ear returns the socket of a listener.
func (o *Outbound) ear(t testing.TB, peer string) *udpEar {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.locals {
		if l.want.Peer == peer {
			return l.socks[0].(*udpEar)
		}
	}
	t.Fatalf("there is no listener for %s", peer)
	return nil
}

// BenchmarkUDPFlow measures what a flow costs here. An inbound one also costs the kernel's socket.
func BenchmarkUDPFlow(b *testing.B) {
	const n = 50_000
	b.Run("outbound", func(b *testing.B) {
		for b.Loop() {
			flows := NewFlows(Limits{UDPFlows: 4 * n, PeerUDPFlows: 2 * n})
			flows.Attach(&counting{}, ownAddr)
			o := NewOutbound(flows, OutboundOptions{Find: func(context.Context, Target) (netip.AddrPort, error) {
				return netip.AddrPortFrom(cloudAddr, 53), nil
			}})
			o.SetLocals([]Local{{Peer: "cloud", Service: "dns", Address: "127.0.0.1:0/UDP"}})
			e := o.ear(b, "cloud")
			before := heap()
			for i := range n {
				e.datagram(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 12), byte(i >> 4), 1}), uint16(1000+i%16)), []byte("x"))
				if i%256 == 0 {
					eventually(b, "the opening of flows", func() bool { return o.UDPCounters().Accepted+512 > uint64(i) })
				}
			}
			eventually(b, "the opening of all flows", func() bool { return o.UDPCounters().Accepted == n })
			b.ReportMetric(float64(heap()-before)/n, "bytes/flow")
			o.Close()
			flows.udp.close()
		}
	})
	b.Run("inbound", func(b *testing.B) {
		m := int(min(20_000, openFiles()*3/4))
		for b.Loop() {
			up := udpServer(b)
			flows := NewFlows(Limits{UDPFlows: 2 * m, PeerUDPFlows: m, InboundUDPFlows: 2 * m})
			flows.Attach(&counting{}, ownAddr)
			in := NewInbound(flows, InboundOptions{Resolve: func(netip.Addr) (Peer, bool) { return Peer{Name: "cloud"}, true },
				Allowed: func(Peer, string) bool { return true }})
			if err := in.SetServices([]Service{{Name: "dns", Ports: port53, Upstream: up.LocalAddr().String()}}); err != nil {
				b.Fatal(err)
			}
			before, slab := heap(), kernelSlab(b)
			for i := range m {
				in.Datagram(netip.AddrPortFrom(cloudAddr, uint16(1000+i)), netip.AddrPortFrom(ownAddr, 53), []byte("x"))
				if i%256 == 0 {
					eventually(b, "the opening of flows", func() bool { return in.UDPCounters().Accepted+512 > uint64(i) })
				}
			}
			eventually(b, "the opening of all flows", func() bool { return in.UDPCounters().Accepted == uint64(m) })
			b.ReportMetric(float64(heap()-before)/float64(m), "bytes/flow")
			b.ReportMetric(float64(kernelSlab(b)-slab)/float64(m), "kernel-bytes/flow")
			flows.udp.close()
		}
	})
}

// heap returns the heap in use, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// kernelSlab returns the memory of the kernel's own objects on the machine, in bytes.
func kernelSlab(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Skip("not on Linux: ", err)
	}
	for line := range strings.Lines(string(text)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "Slab: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}
