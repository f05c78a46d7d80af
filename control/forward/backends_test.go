package forward

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// pods are backends. The first that was not tried is picked.
type pods struct {
	mu    sync.Mutex
	ready []netip.AddrPort
	nth   []int // by which ports clients came
	until map[netip.AddrPort]*until
}

// until is how long a backend is ready.
type until struct {
	ctx context.Context
	end context.CancelFunc
}

func (p *pods) set(ready ...netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = ready
	for a, u := range p.until {
		if !slices.Contains(ready, a) {
			u.end()
			delete(p.until, a)
		}
	}
}

func (p *pods) Pick(_ string, nth int, tried []netip.AddrPort) Backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nth = append(p.nth, nth)
	for _, a := range p.ready {
		if slices.Contains(tried, a) {
			continue
		}
		u := p.until[a]
		if u == nil {
			u = &until{}
			u.ctx, u.end = context.WithCancel(context.Background())
			if p.until == nil {
				p.until = map[netip.AddrPort]*until{}
			}
			p.until[a] = u
		}
		return Backend{a, u.ctx}
	}
	return Backend{}
}

const web = "shop/web:80"

// cluster offers a service of this cluster at ports 10000 to 10015, and grants it to cloud.
func (g *gateway) cluster(p Backends, protocol api.Protocol) {
	g.t.Helper()
	g.mu.Lock()
	g.allow["cloud"] = append(g.allow["cloud"], web)
	g.mu.Unlock()
	if err := g.in.SetClusterServices(nil, []Service{{Name: web, Ports: api.Ports{Protocol: protocol, First: 10000, Last: 10015}, Backends: p}}); err != nil {
		g.t.Fatal(err)
	}
}

func addr(t testing.TB, s string) netip.AddrPort {
	t.Helper()
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestConnectionsGoToBackendsThatAreReady(t *testing.T) {
	down, up := addr(t, closedPort(t)), ""
	up, conns := upstream(t)
	p := &pods{ready: []netip.AddrPort{down, addr(t, up)}}
	g := newGateway(t, Limits{}, nil)
	g.cluster(p, api.TCP)
	c := g.dial(cloudAddr, 10007).conn()
	backend := take(t, conns)
	send(t, c, "hello")
	wantRead(t, backend, "hello")
	if !slices.Equal(p.nth, []int{7, 7}) {
		t.Errorf("the client came by the ports %v", p.nth)
	}
	if !g.dial(otherAddr, 10000).wasRefused() || !g.dial(cloudAddr, 10016).wasRefused() {
		t.Error("who is not granted it, or asks another port, is let in")
	}
	// None accepts, or none is ready.
	p.set(down)
	if !g.dial(cloudAddr, 10000).wasRefused() {
		t.Error("a connection that no backend accepts is answered")
	}
	p.set()
	if !g.dial(cloudAddr, 10000).wasRefused() {
		t.Error("a connection to nobody is answered")
	}
	n := g.in.Counters().Refused
	if n[UpstreamDown] != 1 || n[NoneReady] != 1 {
		t.Errorf("counted %v", n)
	}
	eventually(t, "two warnings PST0908", func() bool { return strings.Count(g.log.String(), "code=PST0908") == 2 })
	// A port that the configuration gives to another service belongs to that one.
	if err := g.in.SetServices([]Service{{Name: "registry", Ports: api.PortsOf(10000), Upstream: up}}); err != nil {
		t.Fatal(err)
	}
	if g.dial(cloudAddr, 10000).wasRefused() {
		t.Error("a configured service gives way to one of the cluster")
	}
	take(t, conns)
	// The open connections of a removed service are reset.
	if err := g.in.SetClusterServices([]string{web}, nil); err != nil {
		t.Fatal(err)
	}
	wantReset(t, c)
}

// A backend that does not answer costs 2 s; then another one gets the connection.
func TestABackendThatIsSilentIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
		var tried []string
		g := newGateway(t, Limits{}, func(ctx context.Context, to string) (Conn, error) {
			tried = append(tried, to)
			if to == a.String() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		})
		g.cluster(&pods{ready: []netip.AddrPort{a, b}}, api.TCP)
		start := time.Now()
		if !g.dial(cloudAddr, 10000).wasRefused() {
			t.Error("it is answered")
		}
		if took := time.Since(start); took != backendTimeout || !slices.Equal(tried, []string{a.String(), b.String()}) {
			t.Errorf("after %s they tried %v", took, tried)
		}
	})
}

// A client that is being connected to a backend that is no longer ready gets another one at once,
// and nothing from the first, whether that has answered or not.
func TestABackendThatGoesWhileItIsDialledIsGivenUp(t *testing.T) {
	for what, answers := range map[string]bool{"it is silent": false, "it has answered": true} {
		t.Run(what, func(t *testing.T) {
			goes := netip.MustParseAddrPort("10.0.0.1:80")
			address, conns := upstream(t)
			stays := addr(t, address)
			p := &pods{ready: []netip.AddrPort{goes, stays}}
			left := []netip.AddrPort{stays}
			client, server := tcpPair(t)
			g := newGateway(t, Limits{}, func(ctx context.Context, to string) (Conn, error) {
				if to != goes.String() {
					return DialUpstream(ctx, to)
				}
				p.set(left...)
				if answers {
					return client, nil
				}
				<-ctx.Done()
				if ctx.Err() == context.DeadlineExceeded {
					t.Error("it is given up only when its time is over")
				}
				return nil, ctx.Err()
			})
			g.cluster(p, api.TCP)
			c := g.dial(cloudAddr, 10000).conn()
			send(t, c, "hello")
			wantRead(t, take(t, conns), "hello")
			if answers {
				wantReset(t, server)
			}
			left = nil
			p.set(goes)
			if !g.dial(cloudAddr, 10000).wasRefused() || g.in.Counters().Refused[NoneReady] != 1 {
				t.Errorf("with no other left it comes to %v", g.in.Counters().Refused)
			}
		})
	}
}

func TestDatagramsGoToBackendsThatAreThere(t *testing.T) {
	first, second := udpServer(t), udpServer(t)
	one, two := addr(t, first.LocalAddr().String()), addr(t, second.LocalAddr().String())
	p := &pods{ready: []netip.AddrPort{one}}
	g := newGateway(t, Limits{}, nil)
	tun := g.attach()
	g.cluster(p, api.UDP)
	client := netip.AddrPortFrom(cloudAddr, 4000)
	if !g.datagram(client, 10003, "a") {
		t.Fatal("a datagram is refused")
	}
	if got, _ := readFrom(t, first); got != "a" {
		t.Errorf("the backend got %q", got)
	}
	// The flow stays while its backend is there, and ends with it.
	p.set(two)
	g.in.EndFlows(func(service string, a netip.AddrPort) bool { return service != web || a != one && a != two })
	g.datagram(client, 10003, "b")
	if got, _ := readFrom(t, first); got != "b" {
		t.Errorf("the backend got %q", got)
	}
	g.in.EndFlows(func(service string, a netip.AddrPort) bool { return service == web && a == one })
	g.datagram(client, 10003, "c")
	got, from := readFrom(t, second)
	if got != "c" {
		t.Errorf("the other backend got %q", got)
	}
	answer(t, second, from, "d")
	if back := tun.next(t); back.payload != "d" {
		t.Errorf("the client got %+v", back)
	}
	p.set()
	if g.datagram(netip.AddrPortFrom(cloudAddr, 4001), 10003, "e") {
		t.Error("a datagram to nobody is taken")
	}
	if n := g.in.UDPCounters().Refused[NoneReady]; n != 1 {
		t.Errorf("counted %d", n)
	}
}

// A flow only begins at an existing backend, not at one that is removed in the meantime.
func TestAFlowDoesNotBeginAtABackendThatGoes(t *testing.T) {
	server := udpServer(t)
	p := goesWhenPicked{&pods{ready: []netip.AddrPort{addr(t, server.LocalAddr().String())}}}
	g := newGateway(t, Limits{}, nil)
	g.attach()
	g.cluster(p, api.UDP)
	if g.datagram(netip.AddrPortFrom(cloudAddr, 4000), 10000, "question") || g.flows.UDPFlows("cloud") != 0 {
		t.Error("it begins")
	}
	if n := g.in.UDPCounters().Refused[NoneReady]; n != 1 {
		t.Errorf("counted %d", n)
	}
}

type goesWhenPicked struct{ *pods }

func (p goesWhenPicked) Pick(peer string, nth int, tried []netip.AddrPort) Backend {
	defer p.set()
	return p.pods.Pick(peer, nth, tried)
}

// However many connections workloads have open, auth and the API server have their share.
func TestWorkloadsLeaveRoomForAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Limits{Total: 8, Reserve: 2, WorkloadFlows: 16, PeerWorkloadFlows: 12}
		g := newGateway(t, l, func(ctx context.Context, _ string) (Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		g.offer("upstream:1")
		g.cluster(&pods{ready: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}}, api.TCP)
		g.mu.Lock()
		g.allow["other"] = append(g.allow["other"], web)
		g.mu.Unlock()
		open := func(from netip.Addr, port uint16, n int) (refused int) {
			var started []*syn
			for range n {
				started = append(started, g.start(from, port))
			}
			synctest.Wait()
			for _, s := range started {
				select {
				case <-s.refused:
					refused++
				default:
				}
			}
			return refused
		}
		if n := open(cloudAddr, 10000, 20); n != 8 {
			t.Errorf("of 20 connections of one peer's workloads %d are refused, want 8", n)
		}
		if n := open(otherAddr, 10000, 20); n != 16 {
			t.Errorf("of 20 of another's %d are refused, want 16", n)
		}
		if n := open(cloudAddr, api.PortAPIServer, 8); n != 0 {
			t.Errorf("beside them %d of 8 connections to the API server are refused", n)
		}
	})
}

// Thousands of services are found, and changed, without iterating over all of them.
func TestManyServicesOfAClusterChangeByDifference(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	var all []Service
	for i := range 5000 {
		all = append(all, Service{Name: fmt.Sprintf("shop/web-%d:80", i), Ports: api.PortsOf(uint16(10000 + i)), Backends: &pods{}})
	}
	if err := g.in.SetClusterServices(nil, all); err != nil {
		t.Fatal(err)
	}
	if s, ok := g.in.at(api.TCP, 14999); !ok || s.Name != "shop/web-4999:80" {
		t.Errorf("at the last port is %q", s.Name)
	}
	moved := []Service{all[0], all[1]}
	moved[0].Ports, moved[1].Ports = all[1].Ports, all[0].Ports
	if err := g.in.SetClusterServices([]string{"shop/web-2:80"}, moved); err != nil {
		t.Fatal(err)
	}
	for port, want := range map[uint16]string{10000: "shop/web-1:80", 10001: "shop/web-0:80", 10002: "", 10003: "shop/web-3:80"} {
		if s, _ := g.in.at(api.TCP, port); s.Name != want {
			t.Errorf("at %d is %q, want %q", port, s.Name, want)
		}
	}
	err := g.in.SetClusterServices(nil, []Service{{Name: "shop/other:80", Ports: all[3].Ports, Backends: &pods{}}, all[2]})
	if err == nil {
		t.Error("two services have one port")
	}
	if s, _ := g.in.at(api.TCP, 10002); s.Name != "shop/web-2:80" {
		t.Error("one that cannot be offered keeps another one from it")
	}
}
