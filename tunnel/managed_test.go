package tunnel

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// managed returns this node's configuration as another node's managed peer.
func (n *node) managed(name string, endpoints ...netip.AddrPort) peer.Config {
	c := n.as(name, endpoints...)
	c.Managed = true
	return c
}

func (n *node) setPaths(of *node, selected peer.Path, initiate ...peer.Path) {
	n.t.Helper()
	if err := n.SetPaths(of.PublicKey(), Paths{Initiate: initiate, Selected: selected}); err != nil {
		n.t.Fatal(err)
	}
}

// event waits for the next event of a kind.
func (n *node) event(kind EventKind, of *node) Event {
	n.t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		select {
		case got := <-n.events:
			if got.Kind == kind && got.Peer == of.PublicKey() {
				return got
			}
		case <-timeout.C:
			n.t.Fatalf("no event %q came", kind)
		}
	}
}

// heard discards the queued events, and returns how many were of the kind.
func (n *node) heard(kind EventKind) int {
	count := 0
	for {
		select {
		case got := <-n.events:
			if got.Kind == kind {
				count++
			}
		default:
			return count
		}
	}
}

var none peer.Path

// via is a second path to cloud, through a forwarder that translates addresses.
var via = netip.MustParseAddrPort("198.51.100.200:7")

func TestManagedPeersMeetAndLearnTheirPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.managed("edge")) // edge dials: cloud knows no path to it
		edge.set(cloud.managed("cloud", netip.MustParseAddrPort("192.0.2.1:1"), cloud.addr))
		connect(cloud, edge)
		for _, n := range []struct{ at, of *node }{{cloud, edge}, {edge, cloud}} {
			want := Event{Peer: n.of.PublicKey(), Kind: HandshakeDone, Path: peer.Direct(n.of.addr)}
			if got := n.at.event(HandshakeDone, n.of); got != want {
				t.Errorf("event: got %+v, want %+v", got, want)
			}
			s := n.at.stats(n.of)
			if s.Path != want.Path || s.Endpoint != n.of.addr || !s.Proven || s.Attempts != 0 || !s.NextTry.IsZero() {
				t.Errorf("stats: got %+v, want the proven path %v and no dialling", s, want.Path)
			}
		}
	})
}

func TestManagedPeerDoesNotRoam(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		forward(t, n, via, cloud.addr)
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud", cloud.addr))
		connect(cloud, edge)
		direct := peer.Direct(edge.addr)
		edge.setPaths(cloud, peer.Direct(via), peer.Direct(cloud.addr))
		edge.send(cloud, "round about")
		cloud.expect(edge, "round about")
		if got := cloud.stats(edge).Path; got != direct {
			t.Errorf("data from elsewhere moved the path to %v, want %v", got, direct)
		}
		n.block(func(_, to netip.AddrPort) bool { return to == via })
		cloud.send(edge, "straight")
		edge.expect(cloud, "straight")
		cloud.setPaths(edge, peer.Direct(via))
		cloud.send(edge, "lost")
		time.Sleep(time.Second)
		select {
		case got := <-edge.tun.inbound:
			t.Errorf("data left the selected path: %q", got)
		default:
		}
	})
}

// A peer that has endpoints but is not managed roams.
func TestPeersThatAreNotManagedRoam(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		cloud.set(edge.as("edge", edge.addr))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)
		edge.stop()
		moved := startNode(t, n, edge.key, "203.0.113.77:4000")
		moved.set(cloud.as("cloud", cloud.addr))
		connect(cloud, moved)
		if got := cloud.stats(moved); got.Endpoint != moved.addr || got.Path != peer.Direct(moved.addr) {
			t.Errorf("endpoint: got %v (%v), want %v", got.Endpoint, got.Path, moved.addr)
		}
	})
}

func TestPathThatIsOpenOneWayOnly(t *testing.T) {
	for name, test := range map[string]struct{ cloudKnowsVia, crossing bool }{
		"other path known":               {true, false},
		"other path known, both dial":    {true, true},
		"other path not known to us yet": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, cloud, edge := pair(t)
				forward(t, n, via, cloud.addr)
				// The direct path is faster, but nothing comes back on it.
				n.block(func(from, to netip.AddrPort) bool { return from == cloud.addr && to == edge.addr })
				cloud.set(edge.managed("edge"))
				switch {
				case test.crossing:
					cloud.setPaths(edge, none, peer.Direct(edge.addr), peer.Direct(via))
				case test.cloudKnowsVia:
					cloud.setPaths(edge, none, peer.Direct(via))
				}
				begin := time.Now()
				edge.set(cloud.managed("cloud", cloud.addr, via))
				connect(cloud, edge)
				if took := time.Since(begin); took > 8*time.Second {
					t.Errorf("took %v", took)
				}
				if got := edge.event(HandshakeDone, cloud).Path; got != peer.Direct(via) {
					t.Errorf("edge: handshake over %v, want %v", got, via)
				}
				if got := cloud.event(HandshakeDone, edge).Path; got != peer.Direct(via) {
					t.Errorf("cloud: handshake over %v, want %v", got, via)
				}
			})
		})
	}
}

func TestPeerMayBecomeManagedAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.as("edge"))
		for range 2 {
			edge.set(cloud.as("cloud", cloud.addr))
			connect(cloud, edge)
			if edge.heard(HandshakeDone) > 0 {
				t.Error("a peer that roams caused an event")
			}
			edge.set(cloud.managed("cloud", cloud.addr))
			connect(cloud, edge)
			edge.event(HandshakeDone, cloud)
		}
	})
}

func TestManagedSessionIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.managed("edge"))
		c := cloud.managed("cloud", cloud.addr)
		c.Keepalive = 20 * time.Second
		edge.set(c)
		connect(cloud, edge)
		for range 10 {
			time.Sleep(time.Minute)
			edge.send(cloud, "hello")
			cloud.expect(edge, "hello")
			cloud.send(edge, "hello to you")
			edge.expect(cloud, "hello to you")
			if s := edge.stats(cloud); time.Since(s.LastHandshake) > 3*time.Minute || s.Attempts > 0 {
				t.Fatalf("got %+v", s)
			}
		}
		if got := edge.heard(HandshakeDone); got < 4 || got > 7 {
			t.Errorf("%d handshakes were reported in 10 minutes, want one every two", got)
		}
	})
}
