package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience limits waits, in virtual or real time; only a failure takes that long.
const patience = 6 * time.Minute

// datagram is one that arrived.
type datagram struct {
	b    []byte
	from netip.AddrPort
	via  string // the allocation's id
}

// packetConn is what *simnet.Conn and *net.UDPConn have in common.
type packetConn interface {
	ReadFromUDPAddrPort([]byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort([]byte, netip.AddrPort) (int, error)
	LocalAddr() net.Addr
	Close() error
}

// socket is a gateway's shared socket: what a server's handler does not accept goes to the other
// users, as the underlay does it.
type socket struct {
	packetConn
	others chan datagram
	done   chan struct{}

	mu      sync.Mutex
	servers map[netip.AddrPort]func([]byte) bool
	lost    func(b []byte) bool // nil = nothing that is sent
}

func newSocket(t testing.TB, conn packetConn) *socket {
	s := &socket{
		packetConn: conn, others: make(chan datagram, 100), done: make(chan struct{}),
		servers: make(map[netip.AddrPort]func([]byte) bool),
	}
	go func() {
		defer close(s.done)
		buf := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			s.mu.Lock()
			handle := s.servers[from]
			s.mu.Unlock()
			if handle != nil && handle(buf[:n]) {
				continue
			}
			select {
			case s.others <- datagram{b: bytes.Clone(buf[:n]), from: from}:
			default:
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-s.done
	})
	return s
}

// lose makes the network lose packets that are sent from now on.
func (s *socket) lose(lost func(b []byte) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = lost
}

func (s *socket) WriteTo(b []byte, to netip.AddrPort) error {
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()
	if lost != nil && lost(b) {
		return nil
	}
	_, err := s.WriteToUDPAddrPort(b, to)
	return err
}

func (s *socket) AddServer(addr netip.AddrPort, handle func([]byte) bool) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers[addr] = handle
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.servers, addr)
	}
}

// gateway runs a client like a real gateway.
type gateway struct {
	*relay.Client
	inbox   chan datagram
	changed chan struct{}
	stop    func() // ends Run, and waits
	leave   func() // likewise, but leaves the allocation at the server

	mu     sync.Mutex
	ids    int
	sends  map[string]func([][]byte, netip.AddrPort) error
	taken  []string // ids of all allocations so far
	grants []relay.Grant
}

// start runs a client with default options where o has none.
func start(t testing.TB, o relay.Options) *gateway {
	t.Helper()
	g := &gateway{
		inbox: make(chan datagram, 1<<16), changed: make(chan struct{}, 100),
		sends: make(map[string]func([][]byte, netip.AddrPort) error),
	}
	o.ID = func() string {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ids++
		return fmt.Sprintf("relay-%d", g.ids)
	}
	o.Attach = g.attach
	told := o.OnChange
	o.OnChange = func() {
		if told != nil {
			told()
		}
		select {
		case g.changed <- struct{}{}:
		default:
		}
	}
	granted := o.OnGrant
	o.OnGrant = func(is relay.Grant) {
		if granted != nil {
			granted(is)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.grants = append(g.grants, is)
	}
	g.Client = relay.New(o)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	ended := sync.OnceFunc(func() {
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.sends) != 0 {
			t.Errorf("Run ended and left %d allocations attached", len(g.sends))
		}
	})
	g.stop = func() {
		cancel(nil)
		ended()
	}
	g.leave = func() {
		cancel(relay.ErrKeep)
		ended()
	}
	t.Cleanup(g.stop)
	return g
}

// grant returns the last reported grant, which comes after the first allocation.
func (g *gateway) grant(t testing.TB) *relay.Grant {
	t.Helper()
	eventually(t, "a grant was told of", func() bool { return g.told() > 0 })
	g.mu.Lock()
	defer g.mu.Unlock()
	return &g.grants[len(g.grants)-1]
}

func (g *gateway) attach(id string, send func([][]byte, netip.AddrPort) error) (func([]byte, netip.AddrPort), func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sends[id] = send
	g.taken = append(g.taken, id)
	deliver := func(b []byte, from netip.AddrPort) {
		select {
		case g.inbox <- datagram{bytes.Clone(b), from, id}:
		default:
		}
	}
	return deliver, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.sends, id)
	}
}

// send sends over an allocation.
func (g *gateway) send(t testing.TB, id, text string, to netip.AddrPort) {
	t.Helper()
	if err := g.trySend(id, text, to); err != nil {
		t.Fatalf("send %q to %v over %s: %v", text, to, id, err)
	}
}

func (g *gateway) trySend(id, text string, to netip.AddrPort) error {
	g.mu.Lock()
	send := g.sends[id]
	g.mu.Unlock()
	if send == nil {
		return relay.ErrClosed
	}
	return send([][]byte{[]byte(text)}, to)
}

// allocated waits for an allocation that accept accepts, nil = any.
func (g *gateway) allocated(t testing.TB, accept func(relay.Allocation) bool) relay.Allocation {
	t.Helper()
	timeout := time.After(patience)
	for {
		if a, ok := g.Allocation(); ok && (accept == nil || accept(a)) {
			return a
		}
		select {
		case <-g.changed:
		case <-timeout:
			t.Fatalf("no such allocation; the status is %+v", g.Status())
		}
	}
}

// eventually waits until check holds. There is no event for it, so it polls every few
// milliseconds.
func eventually(t testing.TB, what string, check func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !check() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// exchanges counts calls of exchange.
var exchanges atomic.Uint64

// exchange sends a text until it arrives: the first datagrams may precede the permission.
// Superfluous copies of an earlier exchange may still arrive.
func exchange(t testing.TB, send func(text string) error, inbox <-chan datagram) datagram {
	t.Helper()
	call := fmt.Sprintf("exchange %d, ", exchanges.Add(1))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for n := 0; ; n++ {
		if err := send(call + strconv.Itoa(n)); err != nil {
			t.Fatalf("send: %v", err)
		}
		for waits := true; waits; {
			select {
			case d := <-inbox:
				if strings.HasPrefix(string(d.b), call) {
					return d
				}
			case <-tick.C:
				waits = false
			case <-timeout:
				t.Fatal("nothing arrived")
			}
		}
	}
}

// inet is a simulated internet with a relay, and hosts where a test needs them.
type inet struct {
	*simnet.Internet
	t      testing.TB
	relay  *simnet.Host
	server *turnserver.Server
	edges  []site
}

var (
	relayAddr = netip.MustParseAddr("203.0.113.1")
	users     = map[string]string{"edge": "secret"}
	account   = relay.Server{Address: "203.0.113.1:3478", Username: "edge", Password: "secret", Transport: relay.TransportUDP}
)

func newInet(t testing.TB, o turnserver.Options, link simnet.LinkOptions) *inet {
	in := &inet{Internet: simnet.New(simnet.Options{Seed: 1}), t: t}
	t.Cleanup(func() { in.Close() })
	in.relay = in.host("relay", nil, relayAddr, link)
	in.serve(o)
	t.Cleanup(func() { in.server.Close() })
	return in
}

// serve starts the relay's server, also after it was closed.
func (in *inet) serve(o turnserver.Options) {
	in.t.Helper()
	if o.Users == nil {
		o.Users = users
	}
	server, err := turnserver.ServeHost(in.relay, relayAddr, o)
	if err != nil {
		in.t.Fatal(err)
	}
	in.server = server
}

func (in *inet) host(name string, network *simnet.Network, addr netip.Addr, link simnet.LinkOptions) *simnet.Host {
	in.t.Helper()
	h, err := in.AddHost(simnet.HostOptions{Name: name, Network: network, Addrs: []netip.Addr{addr}, Link: link})
	if err != nil {
		in.t.Fatal(err)
	}
	return h
}

func (in *inet) listen(h *simnet.Host, port uint16) *simnet.Conn {
	in.t.Helper()
	conn, err := h.ListenUDP(port)
	if err != nil {
		in.t.Fatal(err)
	}
	return conn
}

// site is a NAT with a gateway's host behind it.
type site struct {
	nat  *simnet.NAT
	host *simnet.Host
}

func (in *inet) behind(name string, addr string, b simnet.Behaviour) site {
	in.t.Helper()
	nat, err := in.AddNAT(simnet.NATOptions{Name: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Behaviour: b})
	if err != nil {
		in.t.Fatal(err)
	}
	s := site{nat: nat, host: in.host(name+"-edge", nat.Inside(), netip.MustParseAddr("192.168.1.2"), simnet.LinkOptions{})}
	in.edges = append(in.edges, s)
	return s
}

// peerOn returns a plain UDP peer on the public internet that puts its datagrams into a channel.
func (in *inet) peerOn(addr string) (*socket, netip.AddrPort) {
	at := netip.AddrPortFrom(netip.MustParseAddr(addr), 51820)
	return newSocket(in.t, in.listen(in.host("peer-"+addr, nil, at.Addr(), simnet.LinkOptions{}), 51820)), at
}

// told returns how many grants were reported.
func (g *gateway) told() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.grants)
}
