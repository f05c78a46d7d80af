package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/patience"
)

// exit is an Outbound whose peers' services are loopback upstreams.
type exit struct {
	*Outbound
	t     *testing.T
	flows *Flows
	log   *logBuffer

	mu sync.Mutex
	up map[string]string // address by "peer/service"
}

func newExit(t *testing.T, l Limits) *exit {
	e := &exit{t: t, flows: NewFlows(l), log: &logBuffer{}, up: make(map[string]string)}
	e.Outbound = NewOutbound(e.flows, OutboundOptions{
		Dial: func(ctx context.Context, to Target) (Conn, error) {
			peer, service := to.Peer, to.Service
			e.mu.Lock()
			address := e.up[peer+"/"+service]
			e.mu.Unlock()
			if address == "" {
				return nil, errors.New("no route to peer")
			}
			return DialUpstream(ctx, address)
		},
		Logger: slog.New(slog.NewTextHandler(e.log, nil)),
	})
	t.Cleanup(func() {
		e.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.flows.Drain(ctx)
		if n := e.flows.Count(); n[DirectionOutbound] != 0 {
			t.Errorf("%d flows left", n[DirectionOutbound])
		}
	})
	return e
}

// leads makes a peer's service lead to an upstream.
func (e *exit) leads(peer, service, address string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.up[peer+"/"+service] = address
}

// address returns a listener's address.
func (e *exit) address(peer, service string) string {
	e.t.Helper()
	for _, l := range e.Locals() {
		if l.Peer == peer && l.Service == service {
			if l.Err != nil {
				e.t.Fatal(l.Err)
			}
			return l.Address
		}
	}
	e.t.Fatalf("no listener for %s of %s", service, peer)
	return ""
}

// connect dials a local listener.
func connect(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	var d net.Dialer
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience.Left()))
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// wantTurnedAway dials a listener and checks that it is reset. The reset may come before
// connect has returned.
func wantTurnedAway(t *testing.T, address string) {
	t.Helper()
	wantTurnedAwayFrom(t, netip.IPv4Unspecified(), address)
}

// wantTurnedAwayFrom does so from an address of this machine.
func wantTurnedAwayFrom(t *testing.T, from netip.Addr, address string) {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience.Left()))
		_, err = c.Read(make([]byte, 1))
	}
	if !isReset(err) {
		t.Fatalf("got %v, want a reset", err)
	}
}

func TestLocalListenerLeadsToThePeersService(t *testing.T) {
	address, conns := upstream(t)
	e := newExit(t, Limits{})
	e.leads("cloud", "apiServer", address)
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	c := connect(t, e.address("cloud", "apiServer"))
	up := take(t, conns)
	send(t, c, "request")
	wantRead(t, up, "request")
	send(t, up, "answer!")
	wantRead(t, c, "answer!")
	eventually(t, "counting", func() bool {
		l := e.flows.List("cloud")
		return len(l) == 1 && l[0].TxBytes == 7 && l[0].RxBytes == 7
	})
	if f := e.flows.List("cloud")[0]; f.Direction != "outbound" || f.Remote != c.LocalAddr().String() {
		t.Errorf("got %+v", f)
	}
	e.flows.ClosePeer("cloud")
	wantReset(t, c)
	wantReset(t, up)
}

func TestDialFailureResetsTheLocalClientWithACause(t *testing.T) {
	e := newExit(t, Limits{})
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	for range 20 {
		wantTurnedAway(t, e.address("cloud", "apiServer"))
	}
	eventually(t, "the count", func() bool { return e.Counters().Refused[PeerDown] == 20 })
	eventually(t, "the warning", func() bool { return strings.Contains(e.log.String(), "code=PST0320") })
	e.Close()
	_ = e.flows.Drain(t.Context()) // until whoever might log has ended
	if !strings.Contains(e.log.String(), "no route to peer") {
		t.Errorf("the warnings do not say why:\n%s", e.log)
	}
}

// A listener knows whether its last connection was carried to the peer.
func TestAListenerKnowsItsLastFailure(t *testing.T) {
	address, conns := upstream(t)
	e := newExit(t, Limits{})
	e.SetLocals([]Local{{Peer: "cloud", Service: "web"}})
	lost := func() error { return e.Locals()[0].Lost }
	if err := lost(); err != nil {
		t.Errorf("before any connection: %v", err)
	}
	wantTurnedAway(t, e.address("cloud", "web"))
	if err := lost(); err == nil || !strings.Contains(err.Error(), "no route to peer") || e.Locals()[0].LostAt.IsZero() {
		t.Errorf("after a failure: %+v", e.Locals()[0])
	}
	e.leads("cloud", "web", address)
	connect(t, e.address("cloud", "web"))
	take(t, conns)
	eventually(t, "forgetting the failure", func() bool { return lost() == nil })
}

func TestLocalClientsAreLimitedPerPeer(t *testing.T) {
	address, conns := upstream(t)
	e := newExit(t, Limits{PeerFlows: 2})
	e.leads("cloud", "apiServer", address)
	e.leads("other", "apiServer", address)
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}, {Peer: "other", Service: "apiServer"}})
	for range 2 {
		connect(t, e.address("cloud", "apiServer"))
		take(t, conns)
	}
	wantTurnedAway(t, e.address("cloud", "apiServer"))
	connect(t, e.address("other", "apiServer"))
	take(t, conns)
	eventually(t, "the count", func() bool { return e.Counters().Refused[PeerFlowLimit] == 1 })
}

func TestPortInUseIsReportedAndTriedAgain(t *testing.T) {
	taken, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	address, conns := upstream(t)
	e := newExit(t, Limits{})
	e.leads("cloud", "apiServer", address)
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer", Address: taken.Addr().String()},
		{Peer: "cloud", Service: "registry"}})
	l := e.Locals()
	if l[0].Err == nil || !strings.Contains(l[0].Err.Error(), "address already in use") || l[0].Address != taken.Addr().String() {
		t.Errorf("got %+v, want the error and the address", l[0])
	}
	if l[1].Err != nil {
		t.Errorf("another listener suffers: %v", l[1].Err)
	}
	if !strings.Contains(e.log.String(), "code=PST0701") {
		t.Errorf("no warning:\n%s", e.log)
	}
	taken.Close()
	eventually(t, "opening", func() bool { return e.Locals()[0].Err == nil })
	connect(t, e.address("cloud", "apiServer"))
	take(t, conns)
	if n := strings.Count(e.log.String(), "PST0701"); n != 1 {
		t.Errorf("warned %d times, want once", n)
	}
}

func TestListenersAreReplacedByDifference(t *testing.T) {
	address, conns := upstream(t)
	e := newExit(t, Limits{})
	for _, s := range []string{"apiServer", "registry", "metrics"} {
		e.leads("cloud", s, address)
	}
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}, {Peer: "cloud", Service: "registry"}, {Peer: "cloud", Service: "metrics"}})
	at := map[string]string{}
	client := map[string]*net.TCPConn{}
	up := map[string]*net.TCPConn{}
	for _, s := range []string{"apiServer", "registry", "metrics"} {
		at[s] = e.address("cloud", s)
		client[s] = connect(t, at[s])
		up[s] = take(t, conns)
	}
	eventually(t, "three open flows", func() bool { return len(e.flows.List("cloud")) == 3 })
	moved := closedPort(t)
	// The API server stays, the registry moves, metrics goes.
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}, {Peer: "cloud", Service: "registry", Address: moved}})

	if now := e.address("cloud", "apiServer"); now != at["apiServer"] {
		t.Errorf("the port did not stay: %s, now %s", at["apiServer"], now)
	}
	if now := e.address("cloud", "registry"); now != moved {
		t.Errorf("got %s, want %s", now, moved)
	}
	for _, s := range []string{"apiServer", "registry"} {
		send(t, client[s], "still open")
		wantRead(t, up[s], "still open")
	}
	wantReset(t, client["metrics"])
	wantReset(t, up["metrics"])
	var d net.Dialer
	if c, err := d.DialContext(t.Context(), "tcp", at["metrics"]); err == nil {
		c.Close()
		t.Error("a listener that is gone still accepts")
	}
	// Configuring the address that it already has is no change.
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer", Address: at["apiServer"]}})
	send(t, client["apiServer"], "even now")
	wantRead(t, up["apiServer"], "even now")
}

func TestAFreePortIsTakenAgainInTheNextRun(t *testing.T) {
	e := newExit(t, Limits{})
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	first := e.address("cloud", "apiServer")
	e.Close()

	port, err := netip.ParseAddrPort(first)
	if err != nil {
		t.Fatal(err)
	}
	next := newExit(t, Limits{})
	next.SetLocals([]Local{{Peer: "cloud", Service: "apiServer", Port: port.Port()}})
	if got := next.address("cloud", "apiServer"); got != first {
		t.Errorf("got %s, want %s", got, first)
	}
}

// A listener without a configured address leaves an address to one that is configured with it.
func TestAddressesComeBeforePorts(t *testing.T) {
	e := newExit(t, Limits{})
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	at := e.address("cloud", "apiServer")
	port, err := netip.ParseAddrPort(at)
	if err != nil {
		t.Fatal(err)
	}
	e.SetLocals(nil)
	want := []Local{{Peer: "cloud", Service: "registry", Address: at}}
	for i := range 8 {
		want = append(want, Local{Peer: "cloud", Service: fmt.Sprint("other-", i), Port: port.Port()})
	}
	e.SetLocals(want)
	if got := e.address("cloud", "registry"); got != at {
		t.Errorf("got %s, want %s", got, at)
	}
}

func TestClosedOutboundOpensNothing(t *testing.T) {
	e := newExit(t, Limits{})
	e.Close()
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	if l := e.Locals(); len(l) != 0 {
		t.Errorf("got %v", l)
	}
}
