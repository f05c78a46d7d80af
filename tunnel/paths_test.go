package tunnel

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

func TestSilentPathIsReportedOnceAndLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		forward(t, n, via, cloud.addr)
		straight, around := peer.Direct(cloud.addr), peer.Direct(via)
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud"))
		edge.setPaths(cloud, straight, straight, around)
		connect(cloud, edge)
		time.Sleep(30 * time.Second)
		if edge.heard(Silent) > 0 {
			t.Error("an idle path was called silent")
		}

		n.block(func(from, to netip.AddrPort) bool { return from == edge.addr && to == cloud.addr })
		begin := time.Now()
		edge.send(cloud, "lost")
		if got := edge.event(Silent, cloud); got.Path != straight {
			t.Errorf("silent: got %v, want the selected %v", got.Path, straight)
		}
		if took := time.Since(begin); took < silenceLimit || took > silenceLimit+2*time.Second {
			t.Errorf("it took %v, want a little more than %v", took, silenceLimit)
		}
		// The next handshake gets through on the other path, and so does its first data message.
		// The selected path does not change.
		if got := edge.event(HandshakeDone, cloud); got.Path != around {
			t.Errorf("handshake over %v, want %v", got.Path, around)
		}
		time.Sleep(2 * tick)
		cloud.drain()
		edge.send(cloud, "lost")
		edge.event(Silent, cloud)
		if len(cloud.tun.inbound) > 0 {
			t.Error("data left the selected path")
		}
		edge.setPaths(cloud, around, straight, around)
		edge.send(cloud, "moved")
		cloud.expect(edge, "moved")
		// Handshakes are still reported, but silence is not.
		time.Sleep(10 * time.Second)
		if edge.heard(Silent) > 0 {
			t.Error("the new path was called silent")
		}
	})
}

// Data that needs no answer does not count as silence, if the peer answers data that does.
func TestAQuietPeerIsAskedBeforeItCountsAsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		straight := peer.Direct(cloud.addr)
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud"))
		edge.setPaths(cloud, straight, straight)
		connect(cloud, edge)
		time.Sleep(30 * time.Second)

		edge.heard(Quiet)
		begin := time.Now()
		edge.send(cloud, "the last word")
		cloud.expect(edge, "the last word")
		edge.event(Quiet, cloud)
		if took := time.Since(begin); took < quietLimit || took > quietLimit+2*tick {
			t.Errorf("it took %v to be asked for an answer, want a little more than %v", took, quietLimit)
		}
		edge.send(cloud, "are you there")
		cloud.expect(edge, "are you there")
		cloud.send(edge, "yes")
		edge.expect(cloud, "yes")
		time.Sleep(20 * time.Second)
		if n := edge.heard(Silent); n > 0 {
			t.Errorf("the path was called silent %d times", n)
		}
	})
}

func TestSilenceIsJudgedAnewForEachPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		paths := []peer.Path{peer.Direct(cloud.addr), peer.Direct(via), peer.Direct(netip.MustParseAddrPort("192.0.2.1:1"))}
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud"))
		edge.setPaths(cloud, paths[0], paths...)
		connect(cloud, edge)
		n.block(func(netip.AddrPort, netip.AddrPort) bool { return true })
		for i, p := range paths {
			edge.setPaths(cloud, p, paths...)
			begin := time.Now()
			edge.send(cloud, "lost")
			if got := edge.event(Silent, cloud); got.Path != p {
				t.Errorf("silent: got %v, want %v", got.Path, p)
			}
			if took := time.Since(begin); took < time.Second || took > silenceLimit+3*time.Second {
				t.Errorf("path %d: it took %v", i, took)
			}
			time.Sleep(2 * time.Minute)
			if again := edge.heard(Silent); again > 0 {
				t.Errorf("path %d was called silent %d more times", i, again)
			}
		}
		n.block(nil)
		edge.setPaths(cloud, paths[0], paths...)
		connect(cloud, edge)
	})
}

func TestManagedPeerIsDialledAsSoonAsAPathIsKnown(t *testing.T) {
	for name, keepalive := range map[string]time.Duration{"idle": 0, "with keepalives": 25 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, cloud, edge := pair(t)
				cloud.set(edge.managed("edge"))
				c := cloud.managed("cloud")
				c.Keepalive = keepalive
				edge.set(c) // the device tries, with keepalives, and has no address to send to
				time.Sleep(100 * time.Millisecond)
				begin := time.Now()
				edge.setPaths(cloud, none, peer.Direct(cloud.addr))
				edge.event(HandshakeDone, cloud)
				if took := time.Since(begin); took > 100*time.Millisecond {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// The relay becomes known just after the first dial, which had no path.
func TestNewPathIsTriedSoonAfterADialInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud"))
		begin := time.Now()
		edge.setPaths(cloud, none, peer.Direct(netip.MustParseAddrPort("192.0.2.1:1")))
		time.Sleep(50 * time.Millisecond)
		edge.setPaths(cloud, none, peer.Direct(cloud.addr))
		edge.event(HandshakeDone, cloud)
		if took := time.Since(begin); took > newPathWait+tieBreakDelay+4*oneWay {
			t.Errorf("took %v, want %v and a round trip", took, newPathWait+tieBreakDelay)
		}
	})
}

func TestNewPathsAreDialledAtMostEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		nowhere := netip.MustParseAddrPort("192.0.2.1:1")
		edge.set(cloud.managed("cloud", nowhere))
		for i := range uint16(100) {
			edge.setPaths(cloud, none, peer.Direct(nowhere), peer.Direct(netip.AddrPortFrom(nowhere.Addr(), 1000+i)))
			time.Sleep(100 * time.Millisecond)
		}
		if got := n.initiationsTo(edge.addr, nowhere); got < 8 || got > 12 {
			t.Errorf("%d initiations in 10 s, want about 10", got)
		}
	})
}

func TestSetPathsChangesNothingButThePaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud", cloud.addr))
		connect(cloud, edge)
		before, initiations := edge.stats(cloud), n.initiationsTo(edge.addr, cloud.addr)
		for range 3 {
			edge.setPaths(cloud, peer.Direct(cloud.addr), peer.Direct(cloud.addr))
			edge.setPaths(cloud, none, peer.Direct(cloud.addr), peer.Direct(via))
			edge.set(cloud.managed("cloud"))
		}
		edge.send(cloud, "still")
		cloud.expect(edge, "still")
		time.Sleep(3 * time.Second)
		after := edge.stats(cloud)
		if !after.LastHandshake.Equal(before.LastHandshake) || n.initiationsTo(edge.addr, cloud.addr) != initiations {
			t.Errorf("there was another handshake: %v, then %v", before.LastHandshake, after.LastHandshake)
		}
		// All earlier paths are tried again, including the last proven one.
		edge.setPaths(cloud, none, peer.Direct(via))
		if err := edge.Redial(cloud.PublicKey()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := n.initiationsTo(edge.addr, cloud.addr); got != initiations+1 {
			t.Errorf("redial: got %d initiations to the proven path, want 1", got-initiations)
		}
		if got := n.initiationsTo(edge.addr, via); got != 1 {
			t.Errorf("redial: got %d initiations to the path that is set, want 1", got)
		}
	})
}

func TestSetPathsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		edge.set(cloud.as("cloud", cloud.addr))
		if err := edge.SetPaths(cloud.PublicKey(), Paths{}); !errors.Is(err, ErrNotManaged) {
			t.Errorf("peer that roams: got %v, want ErrNotManaged", err)
		}
		if err := edge.SetPaths(newKey(t).Public(), Paths{}); !errors.Is(err, ErrUnknownPeer) {
			t.Errorf("unknown peer: got %v, want ErrUnknownPeer", err)
		}
		edge.stop()
		if err := edge.SetPaths(cloud.PublicKey(), Paths{}); !errors.Is(err, ErrClosed) {
			t.Errorf("after close: got %v, want ErrClosed", err)
		}
	})
}

// An event's callback may use the Engine.
func TestEventsMayBeAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemory()
		cloud := startNode(t, n, newKey(t), cloudAddr)
		at := netip.MustParseAddrPort(edgeAddr)
		var edge *Engine
		ready, answered := make(chan struct{}), make(chan error, 1)
		d := newFakeTun()
		edge, err := New(Options{
			PrivateKey: newKey(t), ListenPort: at.Port(), Device: d, Logger: logger(t),
			Underlay: underlay.NewPacket(n.listen(at.Addr()), underlay.Options{}),
			OnEvent: func(event Event) {
				<-ready
				err := edge.SetPaths(event.Peer, Paths{Selected: event.Path})
				select {
				case answered <- errors.Join(err, edge.SetPeers(nil)):
				default:
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer edge.Close()
		close(ready)
		cloud.set(peer.Config{Name: "edge", PublicKey: edge.PublicKey(), Managed: true})
		if err := edge.SetPeers([]peer.Config{cloud.managed("cloud", cloud.addr)}); err != nil {
			t.Fatal(err)
		}
		keepPeer(edge, cloud.PublicKey())
		select {
		case err := <-answered:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("no event came")
		}
	})
}

func TestEventKindsAreNamed(t *testing.T) {
	for want, k := range map[string]EventKind{"handshake done": HandshakeDone, "silent": Silent, "quiet": Quiet, "event kind 9": 9} {
		if got := k.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
