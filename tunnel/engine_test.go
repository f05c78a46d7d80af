package tunnel

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// The nodes' addresses in the simulated network.
const (
	cloudAddr = "198.51.100.1:51820"
	edgeAddr  = "203.0.113.9:51820"
)

// pair starts cloud, which waits, and edge, which dials cloud, before they know each other.
func pair(t *testing.T) (n *memory, cloud, edge *node) {
	n = newMemory()
	return n, startNode(t, n, newKey(t), cloudAddr), startNode(t, n, newKey(t), edgeAddr)
}

func TestPeerIsDialledWhenAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.as("edge"))
		begin := time.Now()
		edge.set(cloud.as("cloud", cloud.addr))
		waitFor(t, "a handshake", func() bool { return !edge.stats(cloud).LastHandshake.IsZero() })
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("the handshake took %v with a round trip of 20 ms", took)
		}
		connect(cloud, edge)
		s := cloud.stats(edge)
		if s.Endpoint != edge.addr || !s.Proven || s.Attempts != 0 || !s.NextTry.IsZero() || s.Name != "edge" {
			t.Errorf("waiting side: got %+v, want the proven endpoint %v and no dialling", s, edge.addr)
		}
		if since := time.Since(s.LastRx); since > 2*time.Second || s.RxBytes == 0 || s.TxBytes == 0 {
			t.Errorf("waiting side: heard %v ago, %d bytes received, %d sent", since, s.RxBytes, s.TxBytes)
		}
		if got := cloud.Snapshot().ListenPort; got != 51820 {
			t.Errorf("listen port: got %d, want 51820", got)
		}
	})
}

func TestBothSidesDiallingAtOnceConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		begin := time.Now()
		cloud.set(edge.as("edge", edge.addr))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("crossing initiations kept them apart for %v", took)
		}
	})
}

func TestDeadCandidatesDoNotDelayTheLivingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.as("edge"))
		begin := time.Now()
		edge.set(cloud.as("cloud",
			netip.MustParseAddrPort("192.0.2.1:51820"), netip.MustParseAddrPort("[2001:db8::1]:51820"), cloud.addr))
		connect(cloud, edge)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("took %v", took)
		}
		if got := edge.stats(cloud).Endpoint; got != cloud.addr {
			t.Errorf("endpoint: got %v, want the one that answered, %v", got, cloud.addr)
		}
	})
}

func TestChangesDoNotDisturbSessions(t *testing.T) {
	psk := peer.PresharedKeyFromBytes([32]byte{1})
	other := peer.Config{Name: "other", PublicKey: newKey(t).Public(), Endpoints: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:1")}}
	for name, change := range map[string]func(cloud peer.Config) []peer.Config{
		"nothing":             func(c peer.Config) []peer.Config { return []peer.Config{c} },
		"another peer":        func(c peer.Config) []peer.Config { return []peer.Config{other, c} },
		"its name":            func(c peer.Config) []peer.Config { c.Name = "new"; return []peer.Config{c} },
		"its keepalive":       func(c peer.Config) []peer.Config { c.Keepalive = 25 * time.Second; return []peer.Config{c} },
		"its preshared key":   func(c peer.Config) []peer.Config { c.PresharedKey = psk; return []peer.Config{c} },
		"its endpoints":       func(c peer.Config) []peer.Config { c.Endpoints = other.Endpoints; return []peer.Config{c} },
		"no endpoints":        func(c peer.Config) []peer.Config { c.Endpoints = nil; return []peer.Config{c} },
		"everything and back": func(c peer.Config) []peer.Config { c.Name = "x"; return []peer.Config{c, other} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, cloud, edge := pair(t)
				cloud.set(edge.as("edge"))
				edge.set(cloud.as("cloud", cloud.addr))
				connect(cloud, edge)
				before, initiations := edge.stats(cloud), n.initiationsTo(edge.addr, cloud.addr)

				edge.set(change(cloud.as("cloud", cloud.addr))...)
				edge.send(cloud, "still")
				cloud.expect(edge, "still")
				cloud.send(edge, "here")
				edge.expect(cloud, "here")
				time.Sleep(3 * time.Second) // ticks of drive

				after := edge.stats(cloud)
				if !after.LastHandshake.Equal(before.LastHandshake) || n.initiationsTo(edge.addr, cloud.addr) != initiations {
					t.Errorf("there was another handshake: %v, then %v", before.LastHandshake, after.LastHandshake)
				}
				if after.Endpoint != cloud.addr {
					t.Errorf("endpoint: got %v, want %v", after.Endpoint, cloud.addr)
				}
				if after.RxBytes <= before.RxBytes {
					t.Errorf("received bytes: %d, then %d: counters started over", before.RxBytes, after.RxBytes)
				}
			})
		})
	}
}

func TestRemovedPeerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.as("edge"))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)
		cloud.set()
		cloud.drain()
		if got := cloud.Snapshot().Peers; len(got) != 0 {
			t.Errorf("peers: got %v, want none", got)
		}
		edge.send(cloud, "anybody")
		time.Sleep(20 * time.Second)
		if len(cloud.tun.inbound) != 0 {
			t.Error("a removed peer's packet arrived")
		}
		cloud.set(edge.as("edge"))
		waitFor(t, "a packet", func() bool { // packets under the old session's keys are lost
			edge.send(cloud, "again")
			return len(cloud.tun.inbound) > 0
		})
	})
}

func TestDifferentPresharedKeysDoNotShakeHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		toEdge, toCloud := edge.as("edge", edge.addr), cloud.as("cloud", cloud.addr)
		toEdge.PresharedKey = peer.PresharedKeyFromBytes([32]byte{1})
		cloud.set(toEdge)
		edge.set(toCloud)
		time.Sleep(10 * time.Minute)
		if s := edge.stats(cloud); !s.LastHandshake.IsZero() || s.NextTry.IsZero() {
			t.Errorf("got %+v, want no handshake, and another try planned", s)
		}
		tries := n.initiationsTo(edge.addr, cloud.addr)
		time.Sleep(time.Minute)
		if n.initiationsTo(edge.addr, cloud.addr) == tries {
			t.Error("dialling has ended")
		}
		toCloud.PresharedKey = toEdge.PresharedKey
		begin := time.Now()
		edge.set(toCloud)
		connect(cloud, edge)
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("with the right key it took %v", took)
		}
	})
}

func TestRestartResumesWithinFiveSeconds(t *testing.T) {
	for name, test := range map[string]struct {
		restartDialler, busy bool
	}{
		"the dialling side, idle": {true, false},
		"the dialling side, busy": {true, true},
		"the waiting side, idle":  {false, false},
		"the waiting side, busy":  {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, cloud, edge := pair(t)
				cloud.set(edge.as("edge"))
				edge.set(cloud.as("cloud", cloud.addr))
				connect(cloud, edge)
				time.Sleep(50 * time.Second)
				connect(cloud, edge)
				proven := cloud.stats(edge).Endpoint

				begin := time.Now()
				if test.restartDialler {
					edge.stop()
					edge = startNode(t, n, edge.key, edgeAddr)
					edge.set(cloud.as("cloud", cloud.addr))
				} else {
					cloud.stop()
					cloud = startNode(t, n, cloud.key, cloudAddr)
					cloud.set(edge.as("edge", proven)) // as it was stored
				}
				if test.busy {
					edge.send(cloud, "meanwhile")
					cloud.send(edge, "meanwhile")
				}
				reach(edge, cloud)
				reach(cloud, edge)
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestSilentPathIsLeftForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemory()
		cloud, edge := startNode(t, n, newKey(t), cloudAddr), startNode(t, n, newKey(t), edgeAddr)
		// A second path to cloud goes through a forwarder that translates addresses.
		via := netip.MustParseAddrPort("198.51.100.200:7")
		forward(t, n, via, cloud.addr)
		n.block(func(_, to netip.AddrPort) bool { return to == via })
		cloud.set(edge.as("edge"))
		edge.set(cloud.as("cloud", cloud.addr, via))
		connect(cloud, edge)
		cloud.drain()

		n.block(func(from, to netip.AddrPort) bool { return from == edge.addr && to == cloud.addr })
		begin := time.Now()
		waitFor(t, "the other path", func() bool {
			edge.send(cloud, "moved")
			return len(cloud.tun.inbound) > 0
		})
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("took %v, want about the 5 s of silence", took)
		}
		if got := edge.stats(cloud).Endpoint; got != via {
			t.Errorf("endpoint: got %v, want %v", got, via)
		}
	})
}

// forward relays datagrams between one client and the target.
func forward(t *testing.T, n *memory, at, target netip.AddrPort) {
	c, err := n.listen(at.Addr())(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var client netip.AddrPort
		b := make([]byte, 1<<16)
		for {
			size, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			to := target
			if from == target {
				to = client
			} else {
				client = from
			}
			if _, err := c.WriteToUDPAddrPort(b[:size], to); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-done
	})
}

func TestOutageOfAnyLengthEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		cloud.set(edge.as("edge"))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)
		n.block(func(netip.AddrPort, netip.AddrPort) bool { return true })
		edge.send(cloud, "lost")
		time.Sleep(time.Hour)
		s := edge.stats(cloud)
		if s.Attempts < 65 || time.Until(s.NextTry) > 53*time.Second || time.Until(s.NextTry) < 0 {
			t.Errorf("after an hour: %d attempts, the next in %v; want one about every 34 or 49 s", s.Attempts, time.Until(s.NextTry))
		}
		if s.Endpoint != cloud.addr || !s.Proven {
			t.Errorf("the endpoint was forgotten: %v", s.Endpoint)
		}
		if rate := n.initiationsTo(edge.addr, cloud.addr); rate > 250 {
			t.Errorf("%d initiations in an hour", rate)
		}
		n.block(nil)
		waitFor(t, "a new session", func() bool { return time.Since(edge.stats(cloud).LastHandshake) < time.Minute })
		connect(cloud, edge)
	})
}

func TestRedialSendsAnInitiationAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		cloud.set(edge.as("edge"))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)
		before := n.initiationsTo(edge.addr, cloud.addr)
		for i := range 2 { // Within 5 s of the last one, WireGuard alone would send none.
			time.Sleep(100 * time.Millisecond)
			if err := edge.Redial(cloud.PublicKey()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := n.initiationsTo(edge.addr, cloud.addr); got != before+i+1 {
				t.Errorf("initiations after redial %d: got %d, want %d", i+1, got, before+i+1)
			}
			begin := time.Now()
			waitFor(t, "the handshake", func() bool { return edge.stats(cloud).LastHandshake.After(begin) })
			connect(cloud, edge)
		}
		if err := cloud.Redial(edge.PublicKey()); err != nil {
			t.Errorf("redial at the proven endpoint: %v", err)
		}
	})
}

// An engine that closes while it owes its peer a packet would be dialled by the peer for 90 s.
func TestAcknowledgedPeerCallsNobodyAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		cloud.set(edge.as("edge"))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)
		time.Sleep(20 * time.Second) // everything else has been acknowledged
		before := n.initiationsTo(cloud.addr, edge.addr)
		cloud.send(edge, "last")
		edge.expect(cloud, "last")
		if err := edge.Acknowledge(t.Context(), cloud.PublicKey()); err != nil {
			t.Fatal(err)
		}
		edge.stop()
		time.Sleep(2 * time.Minute)
		if got := n.initiationsTo(cloud.addr, edge.addr); got != before {
			t.Errorf("%d initiations went to an engine that has ended, want none", got-before)
		}
	})
}

func TestRoamingPeerIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		cloud.set(edge.as("edge"))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)
		edge.stop()
		moved := startNode(t, n, edge.key, "203.0.113.77:4000")
		moved.set(cloud.as("cloud", cloud.addr))
		connect(cloud, moved)
		if got := cloud.stats(moved).Endpoint; got != moved.addr {
			t.Errorf("endpoint: got %v, want %v", got, moved.addr)
		}
	})
}

func TestKeepaliveOpensThePathFromInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.as("edge"))
		c := cloud.as("cloud", cloud.addr)
		c.Keepalive = 25 * time.Second
		edge.set(c)
		connect(cloud, edge)
		for range 20 {
			time.Sleep(time.Minute)
			if s := cloud.stats(edge); time.Since(s.LastRx) > 30*time.Second {
				t.Fatalf("last heard %v ago with a keepalive of 25 s", time.Since(s.LastRx))
			}
			if s := edge.stats(cloud); s.Attempts > 0 {
				t.Fatalf("keepalives alone made it dial: %+v", s)
			}
		}
	})
}
