package forward

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/testenv/patience"
)

// guarded returns an exit with a listener for cloud's API server with this admission.
func guarded(t *testing.T, upstream string, admit func(Local, api.Protocol, netip.AddrPort) error) *exit {
	e := newExit(t, Limits{})
	e.opts.Admit, e.opts.Audit = admit, audit.New(slog.New(slog.NewTextHandler(e.log, nil)))
	e.leads("cloud", "apiServer", upstream)
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	return e
}

func TestWhoIsNotAdmittedIsResetAndNothingIsDialled(t *testing.T) {
	address, conns := upstream(t)
	var asked atomic.Int32
	e := guarded(t, address, func(l Local, _ api.Protocol, from netip.AddrPort) error {
		asked.Add(1)
		if l.Peer != "cloud" || l.Service != "apiServer" || !from.Addr().IsLoopback() || from.Port() == 0 {
			t.Errorf("asked about %+v from %v", l, from)
		}
		return errors.New("pod tenant/x has no label")
	})
	for range 5 {
		wantTurnedAway(t, e.address("cloud", "apiServer"))
	}
	eventually(t, "the count", func() bool { return e.Counters().Refused[NotAdmitted] == 5 })
	e.Close()
	_ = e.flows.Drain(t.Context()) // until whoever might log has ended
	select {
	case <-conns:
		t.Error("the peer was dialled for somebody who is not admitted")
	default:
	}
	if asked.Load() != 5 || e.Counters().Accepted != 0 {
		t.Errorf("asked %d times, accepted %d", asked.Load(), e.Counters().Accepted)
	}
	log := e.log.String()
	if strings.Count(log, "code=PST0429 direction=outbound peer=cloud") != 5 || !strings.Contains(log, "pod tenant/x has no label") {
		t.Errorf("want a warning of each with the reason:\n%s", log)
	}
	if strings.Count(log, "msg=audit event=refuse peer=cloud service=apiServer") != 5 {
		t.Errorf("want an audit record of each:\n%s", log)
	}
}

func TestWhoIsAdmittedIsServed(t *testing.T) {
	address, conns := upstream(t)
	e := guarded(t, address, func(Local, api.Protocol, netip.AddrPort) error { return nil })
	c := connect(t, e.address("cloud", "apiServer"))
	up := take(t, conns)
	send(t, c, "request")
	wantRead(t, up, "request")
}

// A slow admission must delay neither other clients nor the end of the listener.
func TestAQuestionThatTakesLongDelaysNobodyElse(t *testing.T) {
	address, conns := upstream(t)
	var first atomic.Bool
	answer := make(chan struct{})
	e := guarded(t, address, func(Local, api.Protocol, netip.AddrPort) error {
		if first.CompareAndSwap(false, true) {
			<-answer
			return errors.New("too late to matter")
		}
		return nil
	})
	at := e.address("cloud", "apiServer")
	slow := connect(t, at)
	eventually(t, "the first question", first.Load)
	c := connect(t, at)
	up := take(t, conns)
	send(t, up, "at once")
	wantRead(t, c, "at once")

	// A client that gave up waiting is not counted as turned away.
	e.flows.ClosePeer("cloud")
	wantReset(t, slow)
	close(answer)
	e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	defer cancel()
	if err := e.flows.Drain(ctx); err != nil && !errors.Is(err, ErrIdle) {
		t.Error(err)
	}
}

func TestListenersAreOnTheHostThatIsGiven(t *testing.T) {
	e := newExit(t, Limits{})
	host := netip.MustParseAddr("127.0.0.2") // all of 127.0.0.0/8 is this machine's
	e.opts.Host = host
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	first := netip.MustParseAddrPort(e.address("cloud", "apiServer"))
	if first.Addr() != host {
		t.Errorf("listens on %v, want %v", first, host)
	}
	e.Close()
	again := newExit(t, Limits{})
	again.opts.Host = host
	again.SetLocals([]Local{{Peer: "cloud", Service: "apiServer", Port: first.Port()}})
	if got := again.address("cloud", "apiServer"); got != first.String() {
		t.Errorf("got %s, want the port of before: %v", got, first)
	}
}

// Clients that are not admitted, or about which nothing is known yet, must not take the places of
// those that are, however many connections they open.
func TestWhoIsNotAdmittedTakesNoPlace(t *testing.T) {
	address, conns := upstream(t)
	friend, stranger := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	answer := make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	e := newExit(t, Limits{PeerFlows: 1, HalfOpen: 1, Total: 1, Reserve: 1})
	e.opts.Admit = func(_ Local, _ api.Protocol, from netip.AddrPort) error {
		if from.Addr() == friend {
			return nil
		}
		<-answer
		return errors.New("no pod")
	}
	e.leads("cloud", "apiServer", address)
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	at := e.address("cloud", "apiServer")

	var waiting []net.Conn
	for range unadmittedClient {
		waiting = append(waiting, connectFrom(t, stranger, at))
	}
	eventually(t, "all wait", func() bool { return e.flows.Count()[DirectionOutbound] == unadmittedClient })
	wantTurnedAwayFrom(t, stranger, at) // one more
	if n := e.Counters().Refused[NotAdmitted]; n != 1 {
		t.Errorf("%d are counted as not admitted, want 1", n)
	}

	c := connectFrom(t, friend, at)
	up := take(t, conns)
	send(t, c, "request")
	wantRead(t, up, "request")

	release()
	for _, w := range waiting {
		wantReset(t, w)
	}
	eventually(t, "the count", func() bool { return e.Counters().Refused[NotAdmitted] == unadmittedClient+1 })
	wantTurnedAwayFrom(t, friend, at) // whoever is admitted is counted
	if n := e.Counters().Refused[PeerFlowLimit]; n != 1 {
		t.Errorf("%d are counted as too many, want 1", n)
	}
}

// A pod that opens many connections at a time has all of them, however many wait to be admitted.
func TestManyConnectionsOfOneClientAreAdmitted(t *testing.T) {
	const many = 200
	address, conns := upstream(t)
	e := newExit(t, Limits{})
	answer := make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	e.opts.Admit = func(Local, api.Protocol, netip.AddrPort) error {
		<-answer
		return nil
	}
	e.leads("cloud", "shop/web", address)
	e.SetLocals([]Local{{Peer: "cloud", Service: "shop/web"}})
	for range many {
		connect(t, e.address("cloud", "shop/web"))
	}
	eventually(t, "all wait", func() bool {
		return e.flows.Count()[DirectionOutbound]+int(e.Counters().Refused[NotAdmitted]) == many
	})
	if n := e.Counters().Refused[NotAdmitted]; n > 0 {
		t.Fatalf("%d connections are refused", n)
	}
	release()
	for range many {
		take(t, conns)
	}
}

// A client cannot take all places of a peer, however many connections it opens.
func TestAClientLeavesPlacesForOthers(t *testing.T) {
	const places = 8
	address, conns := upstream(t)
	e := newExit(t, Limits{PeerWorkloadFlows: places})
	e.opts.Admit = func(Local, api.Protocol, netip.AddrPort) error { return nil }
	e.leads("cloud", "shop/web", address)
	e.SetLocals([]Local{{Peer: "cloud", Service: "shop/web"}})
	at := e.address("cloud", "shop/web")
	for round := range 2 { // the second one is with the places that were given back
		var open []net.Conn
		for range places * clientPart / (clientPart + 1) {
			open = append(open, connectFrom(t, netip.MustParseAddr("127.0.0.3"), at))
			take(t, conns)
		}
		wantTurnedAwayFrom(t, netip.MustParseAddr("127.0.0.3"), at)
		for i := range byte(places / (clientPart + 1)) { // each is another client
			open = append(open, connectFrom(t, netip.AddrFrom4([4]byte{127, 0, 0, 4 + i}), at))
			take(t, conns)
		}
		wantTurnedAwayFrom(t, netip.MustParseAddr("127.0.0.9"), at)
		if n := e.Counters().Refused; n[ClientLimit] != uint64(round+1) || n[PeerFlowLimit] != uint64(round+1) {
			t.Errorf("refused %v, want one for each reason and round", n)
		}
		for _, c := range open {
			c.Close()
		}
		e.flows.ClosePeer("cloud")
		eventually(t, "the end of all", func() bool {
			e.flows.mu.Lock()
			defer e.flows.mu.Unlock()
			return len(e.flows.used) == 0
		})
	}
	if log := e.log.String(); !strings.Contains(log, "code=PST0805") || !strings.Contains(log, "127.0.0.3 has most of the 8 connections to cloud") {
		t.Errorf("who has most is not logged:\n%s", log)
	}
}

// The same for flows of datagrams, with an admission and without.
func TestAClientLeavesFlowsForOthers(t *testing.T) {
	t.Run("admitted", func(t *testing.T) {
		leavesFlows(t, func(Local, api.Protocol, netip.AddrPort) error { return nil })
	})
	t.Run("anybody", func(t *testing.T) { leavesFlows(t, nil) })
}

func leavesFlows(t *testing.T, admit func(Local, api.Protocol, netip.AddrPort) error) {
	o, g, tun := newUDPOutbound(t, nil)
	o.opts.Admit = admit
	const places = 8
	g.flows.udp.bounds = bounds{peer: places, halfOpen: places, total: 2 * places}
	o.SetLocals([]Local{{Peer: "cloud", Service: "dns", Address: "127.0.0.1:0/UDP"}})
	e := o.ear(t, "cloud")
	hog, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for i := range uint16(places * clientPart / (clientPart + 1)) {
		e.datagram(netip.AddrPortFrom(hog, 1000+i), []byte("x"))
		tun.next(t)
		eventually(t, "the opening", func() bool { return o.UDPCounters().Accepted == uint64(i+1) })
	}
	e.datagram(netip.AddrPortFrom(hog, 2000), []byte("x"))
	eventually(t, "the refusal", func() bool { return o.UDPCounters().Refused[ClientLimit] == 1 })
	e.datagram(netip.AddrPortFrom(other, 1000), []byte("y"))
	if got := tun.next(t); got.payload != "y" {
		t.Errorf("got %+v", got)
	}
	g.flows.ClosePeer("cloud")
	e.datagram(netip.AddrPortFrom(hog, 2000), []byte("z"))
	if got := tun.next(t); got.payload != "z" {
		t.Errorf("got %+v of who has given its places back", got)
	}
}

func TestHowManyFlowsAClientMayHave(t *testing.T) {
	b := bounds{peer: 100, halfOpen: 20, total: 200, reserve: 8}
	a, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for _, x := range []struct {
		name         string
		of           usage // the client's
		all          usage // the peer's
		total        int
		own, another Reason
	}{
		{"alone", usage{74, 0}, usage{74, 0}, 74, "", ""},
		{"alone, with three quarters", usage{75, 0}, usage{75, 0}, 75, ClientLimit, ""},
		{"of two", usage{42, 0}, usage{84, 0}, 84, "", ""},
		{"of two, with three sevenths", usage{43, 0}, usage{86, 0}, 86, ClientLimit, ""},
		{"all places are taken", usage{10, 0}, usage{100, 0}, 100, PeerFlowLimit, PeerFlowLimit},
		{"three quarters of what may be opened", usage{15, 15}, usage{15, 15}, 15, ClientLimit, ""},
		{"all that may be opened are", usage{1, 1}, usage{20, 20}, 20, PeerHalfOpenLimit, PeerHalfOpenLimit},
		{"few are left in all", usage{30, 0}, usage{30, 0}, 190, ClientLimit, ""},
		{"none is left in all", usage{30, 0}, usage{30, 0}, 200, TotalFlowLimit, TotalFlowLimit},
		{"none but what is reserved", usage{6, 0}, usage{6, 0}, 200, ClientLimit, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			acc := &account{usage: x.all, clients: map[netip.Addr]usage{a: x.of}}
			if own, another := b.admit(acc, a, x.total), b.admit(acc, c, x.total); own != x.own || another != x.another {
				t.Errorf("one more of the client: %q, of another: %q; want %q, %q", own, another, x.own, x.another)
			}
			if got := b.admit(acc, netip.Addr{}, x.total); got != x.another {
				t.Errorf("one more of who is not told apart: %q, want %q", got, x.another)
			}
		})
	}
}

// connectFrom connects from an address of this machine.
func connectFrom(t *testing.T, from netip.Addr, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: patience.Left()}
	c, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The same for datagrams.
func TestDatagramsThatAreNotAdmittedTakeNoPlace(t *testing.T) {
	answer := make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	var friend atomic.Pointer[netip.AddrPort]
	o, g, tun := newUDPOutbound(t, func(context.Context, Target) (netip.AddrPort, error) {
		return netip.MustParseAddrPort("[fd00::1]:53"), nil
	})
	o.opts.Admit = func(_ Local, _ api.Protocol, from netip.AddrPort) error {
		if f := friend.Load(); f != nil && *f == from {
			return nil
		}
		<-answer
		return errors.New("no pod")
	}
	g.flows.udp.bounds = bounds{peer: 1, halfOpen: 1, total: 1, reserve: 1}
	o.SetLocals([]Local{{Peer: "cloud", Service: "dns", Protocol: api.UDP}})
	eventually(t, "the listener", func() bool { return len(o.Locals()) == 1 && o.Locals()[0].Err == nil })
	at := o.Locals()[0].Address
	for i := range unadmittedClient - 1 { // the friend has the same address
		if _, err := dialLocal(t, at, 0).Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		// All at once would not fit into the socket's buffer.
		eventually(t, "all wait", func() bool { return g.flows.UDPFlows("cloud") == i+1 })
	}
	c := dialLocal(t, at, 0)
	from := netip.MustParseAddrPort(c.LocalAddr().String())
	friend.Store(&from)
	if _, err := c.Write([]byte("query")); err != nil {
		t.Fatal(err)
	}
	if got := tun.next(t); got.payload != "query" {
		t.Errorf("got %+v", got)
	}
	eventually(t, "the opening", func() bool { return o.UDPCounters().Accepted > 0 })
	if n := o.UDPCounters(); n.Accepted != 1 || n.Refused[PeerFlowLimit]+n.Refused[PeerHalfOpenLimit]+n.Refused[TotalFlowLimit] > 0 {
		t.Errorf("counted %+v", n)
	}
	release()
	eventually(t, "the refusals", func() bool { return o.UDPCounters().Refused[NotAdmitted] == unadmittedClient-1 })
	if n := g.flows.UDPFlows("cloud"); n != 1 {
		t.Errorf("%d flows are left, want 1", n)
	}
}

// However many clients wait to be admitted, one that was admitted a moment ago is served.
func TestWhoIsKnownIsServedBesideAFloodOfStrangers(t *testing.T) {
	friend := netip.MustParseAddr("10.0.0.1")
	answer := make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	o, g, tun := newUDPOutbound(t, func(context.Context, Target) (netip.AddrPort, error) {
		return netip.MustParseAddrPort("[fd00::1]:53"), nil
	})
	o.opts.Admit = func(_ Local, _ api.Protocol, from netip.AddrPort) error {
		if from.Addr() == friend {
			return nil
		}
		<-answer
		return errors.New("no pod")
	}
	o.opts.Known = func(_ Local, from netip.AddrPort) bool { return from.Addr() == friend }
	o.SetLocals([]Local{{Peer: "cloud", Service: "dns", Address: "127.0.0.1:0/UDP"}})
	e := o.ear(t, "cloud")
	for i := range uint32(unadmittedTotal + 1) {
		forged := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		e.datagram(netip.AddrPortFrom(forged, 1000), []byte("x"))
	}
	if n := o.UDPCounters().Refused[NotAdmitted]; n != 1 {
		t.Errorf("%d of the flood are refused, want the last", n)
	}
	e.datagram(netip.AddrPortFrom(friend, 1000), []byte("query"))
	if n := o.UDPCounters().Refused[NotAdmitted]; n != 1 {
		t.Fatal("who is known is refused")
	}
	if got := tun.next(t); got.payload != "query" {
		t.Errorf("got %+v", got)
	}
	release()
	eventually(t, "the flood is refused", func() bool { return g.flows.UDPFlows("cloud") == 1 })
}

// Addresses from which many clients wait, which may be forged, leave room for a new one.
func TestAFloodFromSomeAddressesLeavesRoom(t *testing.T) {
	answer := make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	o, g, tun := newUDPOutbound(t, func(context.Context, Target) (netip.AddrPort, error) {
		return netip.MustParseAddrPort("[fd00::1]:53"), nil
	})
	pod := netip.MustParseAddr("10.0.0.1")
	o.opts.Admit = func(_ Local, _ api.Protocol, from netip.AddrPort) error {
		if from.Addr() == pod {
			return nil
		}
		<-answer
		return errors.New("no pod")
	}
	o.SetLocals([]Local{{Peer: "cloud", Service: "dns", Address: "127.0.0.1:0/UDP"}})
	e := o.ear(t, "cloud")
	for port := range uint16(unadmittedClient) {
		for i := range 254 { // a node's pods
			e.datagram(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}), 1000+port), []byte("x"))
		}
	}
	e.datagram(netip.AddrPortFrom(pod, 1000), []byte("query"))
	select {
	case p := <-tun.out:
		if p.payload != "query" {
			t.Errorf("got %+v", p)
		}
	case <-time.After(patience.Left()):
		t.Errorf("a new pod is not served while %d wait", g.flows.UDPFlows("cloud"))
	}
	release()
	eventually(t, "the flood is refused", func() bool { return g.flows.UDPFlows("cloud") == 1 })
}
