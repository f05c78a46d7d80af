package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// used returns the counters of a use, and fails the test if it is not counted.
func used(t *testing.T, f *Flows, k Use) Used {
	t.Helper()
	for _, u := range f.Used() {
		if u.Use == k {
			return u
		}
	}
	t.Fatalf("%+v is not counted", k)
	return Used{}
}

var webOfCloud = Use{Direction: DirectionInbound, Peer: "cloud", Service: "shop/web"}

func TestUsesAreCounted(t *testing.T) {
	up, conns := upstream(t)
	p := &pods{ready: []netip.AddrPort{addr(t, up)}}
	g := newGateway(t, Limits{PeerWorkloadFlows: 2}, nil)
	g.cluster(p, api.TCP)
	g.flows.SetUses([]Use{webOfCloud})
	ended, c := g.dial(cloudAddr, 10000).conn(), g.dial(cloudAddr, 10001).conn()
	for _, x := range []struct {
		client, backend interface {
			Write([]byte) (int, error)
			Read([]byte) (int, error)
		}
	}{{ended, take(t, conns)}, {c, take(t, conns)}} {
		send(t, x.client, "hello")
		wantRead(t, x.backend, "hello")
		send(t, x.backend, "hi")
		wantRead(t, x.client, "hi")
	}
	if !g.dial(cloudAddr, 10002).wasRefused() {
		t.Fatal("there is no limit")
	}
	abort(ended)
	eventually(t, "one ends, and what was sent is counted", func() bool { // a byte is, once it was sent
		u := used(t, g.flows, webOfCloud)
		return u.Open == 1 && u.RxBytes == 10 && u.TxBytes == 4
	})
	p.set()
	if !g.dial(cloudAddr, 10002).wasRefused() {
		t.Fatal("a connection to nobody is answered")
	}
	u := used(t, g.flows, webOfCloud)
	if u.Connections != 2 || u.RxBytes != 10 || u.TxBytes != 4 || u.Open != 1 || u.Failures[FlowLimit] != 1 || u.Failures[NoneReady] != 1 || u.Failures[NotGranted] != 0 {
		t.Errorf("counted %+v", u)
	}
	// A use that is no longer set is not counted, and open connections continue.
	g.flows.SetUses(nil)
	if n := len(g.flows.Used()); n != 0 {
		t.Errorf("%d uses are counted", n)
	}
	send(t, c, "again")
	// A use that is set again is counted with the connections that continued in the meantime.
	g.flows.SetUses(nil)
	g.flows.SetUses([]Use{webOfCloud})
	if u := used(t, g.flows, webOfCloud); u.Open != 1 || u.Connections != 2 {
		t.Errorf("counted %+v after it returned", u)
	}
	abort(c)
	eventually(t, "the other ends", func() bool { return used(t, g.flows, webOfCloud).Open == 0 })
	g.flows.SetUses(nil)
	g.flows.SetUses([]Use{webOfCloud})
	if u := used(t, g.flows, webOfCloud); u.Open != 0 || u.Connections != 0 {
		t.Errorf("counted %+v, though nothing of it was left", u)
	}
}

func TestUsesOfDatagramsAreCounted(t *testing.T) {
	server := udpServer(t)
	g := newGateway(t, Limits{}, nil)
	tun := g.attach()
	p := &pods{ready: []netip.AddrPort{addr(t, server.LocalAddr().String())}}
	g.cluster(p, api.UDP)
	g.flows.SetUses([]Use{webOfCloud})
	if !g.datagram(netip.AddrPortFrom(cloudAddr, 4000), 10000, "question") {
		t.Fatal("it is refused")
	}
	_, from := readFrom(t, server)
	answer(t, server, from, "yes")
	tun.next(t)
	p.set()
	if g.datagram(netip.AddrPortFrom(cloudAddr, 4001), 10000, "question") {
		t.Fatal("nobody takes it")
	}
	if u := used(t, g.flows, webOfCloud); u.Open != 1 || u.Connections != 1 || u.RxBytes != 8 || u.TxBytes != 3 || u.Failures[NoneReady] != 1 {
		t.Errorf("counted %+v", u)
	}
	g.flows.ClosePeer("cloud")
	if u := used(t, g.flows, webOfCloud); u.Open != 0 || u.Connections != 1 || u.RxBytes != 8 {
		t.Errorf("counted %+v after its end", u)
	}
}

func TestUsesOfImportsAreCounted(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	var let atomic.Bool
	o := NewOutbound(g.flows, OutboundOptions{
		Dial: func(context.Context, Target) (Conn, error) { return nil, errors.New("refused") },
		Admit: func(Local, api.Protocol, netip.AddrPort) error {
			if !let.Load() {
				return errors.New("may not")
			}
			return nil
		},
	})
	defer o.Close()
	k := Use{Direction: DirectionOutbound, Peer: "cloud", Service: "shop/web"}
	g.flows.SetUses([]Use{k})
	o.SetLocals([]Local{{Peer: "cloud", Service: web}})
	for _, why := range []Reason{NotAdmitted, PeerDown} {
		let.Store(why == PeerDown)
		if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", o.Locals()[0].Address); err == nil { // it may be reset by then
			defer c.Close()
			wantReset(t, c)
		}
		eventually(t, string(why)+" is counted", func() bool {
			return slices.ContainsFunc(g.flows.Used(), func(u Used) bool { return u.Use == k && u.Failures[why] == 1 })
		})
	}
	if u := used(t, g.flows, k); u.Connections != 0 || u.Open != 0 {
		t.Errorf("counted %+v", u)
	}
}

// A service that a peer exports and nobody here uses has no series of its own: the peer may rename
// it all the time.
func TestAUseFromHereIsToldOnceThereWasOne(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	k := Use{Direction: DirectionOutbound, Peer: "cloud", Service: "shop/web"}
	g.flows.SetUses([]Use{k})
	if n := len(g.flows.Used()); n != 0 {
		t.Errorf("%d are told before there was one", n)
	}
	g.flows.refuse(newCounters(), DirectionOutbound, "cloud", "shop/web:80", PeerDown)
	if u := used(t, g.flows, k); u.Failures[PeerDown] != 1 {
		t.Errorf("counted %+v", u)
	}
}

// However many services there are, the number of separate counters is limited, and no peer takes
// all.
func TestUsesAreBounded(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	list := func(peer string, from, n int) (out []Use) {
		for i := range n {
			out = append(out, Use{Direction: DirectionInbound, Peer: peer, Service: fmt.Sprintf("shop/web-%04d", from+i)})
		}
		return out
	}
	many := list("cloud", 1000, maxPeerUses+10)
	g.flows.SetUses(many)
	if n := len(g.flows.Used()); n != maxPeerUses+1 {
		t.Errorf("%d are counted of one peer", n)
	}
	g.flows.refuse(newCounters(), DirectionInbound, "cloud", many[len(many)-1].Service+":80", UpstreamDown)
	rest := Use{Direction: DirectionInbound, Peer: "cloud"}
	if u := used(t, g.flows, rest); u.Failures[UpstreamDown] != 1 {
		t.Errorf("of the others is counted %+v", u)
	}
	// Names that sort earlier do not displace existing counters.
	g.flows.SetUses(append(many, list("cloud", 0, 500)...))
	used(t, g.flows, many[0])
	var all []Use
	for i := range 10 {
		all = append(all, list(fmt.Sprint("peer-", i), 0, 2000)...)
	}
	g.flows.SetUses(append(all, many...))
	if n := len(g.flows.Used()); n > maxUses+11 {
		t.Errorf("%d are counted of all peers", n)
	}
	used(t, g.flows, many[0])
	if u := used(t, g.flows, rest); u.Failures[UpstreamDown] != 1 {
		t.Errorf("of the others is counted %+v", u)
	}
}
