package tunnel

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// relay gives the node an allocation at the address. Datagrams to the address arrive over the
// relay, and those sent over the relay come from the address.
func relay(t *testing.T, n *memory, bind *underlay.Bind, id string, at netip.AddrPort) (remove func()) {
	t.Helper()
	c, err := n.listen(at.Addr())(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	deliver, remove := bind.AddRelay(id, func(ps [][]byte, to netip.AddrPort) error {
		for _, p := range ps {
			if _, err := c.WriteToUDPAddrPort(p, to); err != nil {
				return err
			}
		}
		return nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			size, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			deliver(b[:size], from)
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-done
	})
	return remove
}

var relayed = netip.MustParseAddrPort("192.0.2.53:50000") // edge's allocation

func TestSessionOverARelay(t *testing.T) {
	for name, test := range map[string]struct{ managed, cloudDials bool }{
		"managed, edge dials":      {true, false},
		"managed, cloud dials":     {true, true},
		"not managed, edge dials":  {false, false},
		"not managed, cloud dials": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, cloud, edge := pair(t)
				// Both are behind firewalls; they can only meet at edge's allocation.
				n.block(func(from, to netip.AddrPort) bool { return from == edge.addr || to == edge.addr })
				remove := relay(t, n, edge.bind, "relay-1", relayed)
				over := peer.Path{Via: "relay-1", Remote: cloud.addr}
				if !test.managed {
					unmanagedOverRelay(t, n, cloud, edge, test.cloudDials)
					return
				}
				cloud.set(edge.managed("edge"))
				edge.set(cloud.managed("cloud"))
				if test.cloudDials {
					cloud.setPaths(edge, none, peer.Direct(relayed))
				} else {
					edge.setPaths(cloud, none, over)
				}
				connect(cloud, edge)
				if got := edge.event(HandshakeDone, cloud).Path; got != over {
					t.Errorf("edge: handshake over %v, want %v", got, over)
				}
				if s := edge.stats(cloud); s.Path != over || s.Endpoint != cloud.addr {
					t.Errorf("edge: got path %v to %v, want %v", s.Path, s.Endpoint, over)
				}
				if got := cloud.event(HandshakeDone, edge).Path; got != peer.Direct(relayed) {
					t.Errorf("cloud: handshake over %v, want %v", got, relayed)
				}

				edge.setPaths(cloud, over, over)
				connect(cloud, edge)
				remove()
				errors := edge.bind.Counters().SendErrors
				edge.send(cloud, "lost")
				waitFor(t, "an error", func() bool { return edge.bind.Counters().SendErrors > errors })
				n.block(nil) // now there is another path
				edge.setPaths(cloud, none, peer.Direct(cloud.addr))
				connect(cloud, edge)
			})
		})
	}
}

// unmanagedOverRelay is the test for peers that roam: they follow a peer to a relay, too.
func unmanagedOverRelay(t *testing.T, n *memory, cloud, edge *node, cloudDials bool) {
	t.Helper()
	if cloudDials {
		edge.set(cloud.as("cloud"))
		cloud.set(edge.as("edge", relayed))
		connect(cloud, edge)
		want := peer.Path{Via: "relay-1", Remote: cloud.addr}
		if s := edge.stats(cloud); s.Path != want || !s.Proven {
			t.Errorf("edge: got %+v, want the path %v", s, want)
		}
		time.Sleep(10 * time.Minute)
		connect(cloud, edge)
		return
	}
	// It knows cloud's address, but is not configured to use the relay.
	cloud.set(edge.as("edge"))
	edge.set(cloud.as("cloud", cloud.addr))
	time.Sleep(time.Minute)
	if s := edge.stats(cloud); s.Proven {
		t.Errorf("edge: got %+v, want no session", s)
	}
	if n.initiationsTo(relayed, cloud.addr) != 0 {
		t.Error("an initiation took the relay")
	}
}
