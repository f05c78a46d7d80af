package tunnel

import (
	"bytes"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
)

// far is a path so long that initiations cross, although one side waits for the other's.
const far = 2 * tieBreakDelay

func (n *memory) stretch() {
	n.delay(func([]byte, netip.AddrPort, netip.AddrPort) time.Duration { return far - oneWay })
}

// dialBoth starts two nodes that are far from each other. After prepare, both learn at the same
// moment that the path between them works, and of the other paths. The initiation of a wins.
func dialBoth(t *testing.T, prepare func(n *memory, a, b *node), others ...peer.Path) (n *memory, a, b *node, begin time.Time) {
	t.Helper()
	n = newMemory()
	n.stretch()
	a, b = startNode(t, n, newKey(t), cloudAddr), startNode(t, n, newKey(t), edgeAddr)
	if handshake.Yields(a.publicKey, b.PublicKey()) {
		a, b = b, a
	}
	prepare(n, a, b)
	a.set(b.managed("b"))
	b.set(a.managed("a"))
	begin = time.Now()
	a.setPaths(b, peer.Direct(b.addr), append(others, peer.Direct(b.addr))...)
	b.setPaths(a, peer.Direct(a.addr), peer.Direct(a.addr))
	return n, a, b, begin
}

// handshaken waits until both report a completed handshake, and returns the time since begin.
func handshaken(a, b *node, begin time.Time) time.Duration {
	a.event(HandshakeDone, b)
	b.event(HandshakeDone, a)
	return time.Since(begin)
}

func TestCrossingInitiationsTakeOneRoundTrip(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			n, a, b, begin := dialBoth(t, func(*memory, *node, *node) {})
			if took := handshaken(a, b, begin); took > 3*far+time.Millisecond {
				t.Errorf("crossing initiations took %v, want a round trip and a half of %v", took, 2*far)
			}
			connect(a, b)
			if to, back := n.initiationsTo(a.addr, b.addr), n.initiationsTo(b.addr, a.addr); to != 1 || back != 1 {
				t.Errorf("%d initiations one way and %d the other, want one each", to, back)
			}
			time.Sleep(10 * time.Second) // virtual: no held initiation reappears
			if a.heard(HandshakeDone)+b.heard(HandshakeDone) > 0 {
				t.Error("another handshake was made")
			}
		})
	}
}

// On a path that has not been proven, nobody waits.
func TestInitiationFromAnUnknownPeerIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemory()
		a, b := startNode(t, n, newKey(t), cloudAddr), startNode(t, n, newKey(t), edgeAddr)
		if handshake.Yields(a.publicKey, b.PublicKey()) {
			a, b = b, a
		}
		a.set(b.managed("b", b.addr)) // b doesn't know a yet, and drops its initiation.
		time.Sleep(5 * time.Millisecond)
		begin := time.Now()
		time.Sleep(2 * oneWay)
		b.set(a.managed("a", a.addr))
		if took := handshaken(a, b, begin); took > tieBreakDelay+6*oneWay {
			t.Errorf("took %v, want %v and a round trip and a half of %v after the other side is ready", took, tieBreakDelay, 2*oneWay)
		}
	})
}

// One side waits for the other's initiation if both find a path at the same moment.
func TestInitiationsSeldomCross(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			n := newMemory()
			a, b := startNode(t, n, newKey(t), cloudAddr), startNode(t, n, newKey(t), edgeAddr)
			a.set(b.managed("b"))
			b.set(a.managed("a"))
			begin := time.Now()
			a.setPaths(b, none, peer.Direct(b.addr))
			b.setPaths(a, none, peer.Direct(a.addr))
			if took := handshaken(a, b, begin); took > 3*oneWay+time.Millisecond {
				t.Errorf("took %v, want a round trip and a half of %v", took, 2*oneWay)
			}
			time.Sleep(10 * time.Second) // virtual: nobody dials while there is a session
			if all := n.initiationsTo(a.addr, b.addr) + n.initiationsTo(b.addr, a.addr); all != 1 {
				t.Errorf("%d initiations, want 1", all)
			}
		})
	}
}

// Initiations that cross on an unproven path undo each other. One side dials again when it sees
// that, whether or not probes prove the path meanwhile.
func TestInitiationsThatUndoEachOther(t *testing.T) {
	for name, found := range map[string]bool{"the path is found to work": true, "nothing is found": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMemory()
				n.stretch()
				a, b := startNode(t, n, newKey(t), cloudAddr), startNode(t, n, newKey(t), edgeAddr)
				if handshake.Yields(a.publicKey, b.PublicKey()) {
					a, b = b, a
				}
				a.set(b.managed("b"))
				b.set(a.managed("a"))
				begin := time.Now()
				a.setPaths(b, none, peer.Direct(b.addr))
				b.setPaths(a, none, peer.Direct(a.addr))
				time.Sleep(2*far + oneWay) // virtual: each has answered the other, and a has seen the answer
				if found {
					a.setPaths(b, peer.Direct(b.addr), peer.Direct(b.addr))
					b.setPaths(a, peer.Direct(a.addr), peer.Direct(a.addr))
				}
				if took := handshaken(a, b, begin); took > answerLag+5*far+time.Millisecond {
					t.Errorf("took %v, want %v and two round trips and a half of %v", took, answerLag, 2*far)
				}
				connect(a, b)
				time.Sleep(10 * time.Second) // virtual: nobody dials while there is a session
				if to, back := n.initiationsTo(a.addr, b.addr), n.initiationsTo(b.addr, a.addr); to != 2 || back > 2 {
					t.Errorf("%d initiations one way and %d the other, want 2 and 2 at most", to, back)
				}
			})
		})
	}
}

// The device has sent an initiation on its own, since there is data. A dial for the path, which
// waited for the peer's, would void it.
func TestADialDoesNotUndoWhatTheDeviceHasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemory()
		n.stretch()
		a, b := startNode(t, n, newKey(t), cloudAddr), startNode(t, n, newKey(t), edgeAddr)
		if handshake.Yields(a.publicKey, b.PublicKey()) {
			a, b = b, a
		}
		a.set(b.managed("b"))
		b.set(a.managed("a"))
		time.Sleep(time.Second) // virtual: the first dial has no path
		begin := time.Now()
		b.setPaths(a, none, peer.Direct(a.addr))
		b.send(a, "hello")
		a.expect(b, "hello")
		if took := time.Since(begin); took > 3*far+time.Millisecond {
			t.Errorf("took %v, want %v", took, 3*far)
		}
		if got := n.initiationsTo(b.addr, a.addr); got != 1 {
			t.Errorf("%d initiations, want 1", got)
		}
	})
}

// Nor does a dial that discards the sessions because earlier ones failed.
func TestAForcedDialDoesNotUndoWhatTheDeviceHasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemory()
		n.stretch()
		n.block(func(netip.AddrPort, netip.AddrPort) bool { return true })
		a, b := startNode(t, n, newKey(t), cloudAddr), startNode(t, n, newKey(t), edgeAddr)
		a.set(b.managed("b"))
		b.set(a.managed("a"))
		b.setPaths(a, none, peer.Direct(a.addr))
		time.Sleep(time.Minute) // virtual: dials are half a minute apart by then
		// The initiation of the dial is lost, however often it is sent. The device's own one, 5 s
		// later, is not.
		var dialled []byte
		arrived := make(chan struct{}, 1)
		n.mu.Lock()
		n.blocked = nil
		n.lost = func(m []byte, _, _ netip.AddrPort) bool {
			if m[0] != 1 {
				return false
			}
			if dialled == nil {
				dialled = bytes.Clone(m)
			}
			if bytes.Equal(m, dialled) {
				return true
			}
			select {
			case arrived <- struct{}{}:
			default:
			}
			return false
		}
		n.mu.Unlock()
		if err := b.Redial(a.PublicKey()); err != nil {
			t.Fatal(err)
		}
		<-arrived
		before := n.initiationsTo(b.addr, a.addr)
		begin := time.Now()
		b.setPaths(a, peer.Direct(a.addr), peer.Direct(a.addr))
		if took := handshaken(a, b, begin); took > 3*far+time.Millisecond {
			t.Errorf("took %v, want %v at most", took, 3*far)
		}
		if more := n.initiationsTo(b.addr, a.addr) - before; more > 0 {
			t.Errorf("%d more initiations, want none", more)
		}
	})
}

// A path that proves to work is tried as soon as the last initiation has had its time.
func TestADialDoesNotWaitForTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		n.block(func(netip.AddrPort, netip.AddrPort) bool { return true })
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud"))
		edge.setPaths(cloud, none, peer.Direct(cloud.addr))
		begin := time.Now()
		waitFor(t, "the first dial", func() bool { return n.initiationsTo(edge.addr, cloud.addr) == 1 })
		n.block(nil)
		edge.setPaths(cloud, peer.Direct(cloud.addr), peer.Direct(cloud.addr))
		edge.event(HandshakeDone, cloud)
		if took := time.Since(begin); took > newPathWait+tieBreakDelay+4*oneWay {
			t.Errorf("took %v, want %v", took, newPathWait)
		}
	})
}

// A path that appears after the device sent its own initiation needs another one.
func TestAPathThatCameAfterTheDevicesInitiationIsDialled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		nowhere := peer.Direct(netip.MustParseAddrPort("192.0.2.1:1"))
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud"))
		time.Sleep(time.Second) // virtual: the first dial has no path
		begin := time.Now()
		edge.setPaths(cloud, none, nowhere)
		edge.send(cloud, "hello")
		time.Sleep(tieBreakDelay / 4)
		edge.setPaths(cloud, none, nowhere, peer.Direct(cloud.addr))
		cloud.expect(edge, "hello")
		if took := time.Since(begin); took > newPathWait+tieBreakDelay+4*oneWay {
			t.Errorf("took %v, want %v", took, newPathWait+4*oneWay)
		}
	})
}

// An initiation that the device sent without a path does not delay the first dial on one.
func TestADialAfterTheDevicesWentNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud"))
		edge.send(cloud, "hello")
		synctest.Wait()
		begin := time.Now()
		edge.setPaths(cloud, none, peer.Direct(cloud.addr))
		cloud.expect(edge, "hello")
		if took := time.Since(begin); took > tieBreakDelay+3*oneWay+time.Millisecond {
			t.Errorf("took %v, want %v at most", took, tieBreakDelay+3*oneWay)
		}
	})
}

// An initiation that was lost before there was a session is no reason to discard the session.
func TestADialSparesASessionThoughTheDevicesWentNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud"))
		cloud.send(edge, "hello") // cloud has no path, and never dials
		synctest.Wait()
		edge.setPaths(cloud, none, peer.Direct(cloud.addr))
		connect(cloud, edge)
		time.Sleep(30 * time.Second) // virtual
		if err := cloud.Renew(edge.PublicKey(), 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cloud.mu.Lock()
		session := cloud.peers[edge.PublicKey()].machine.Session(time.Now())
		cloud.mu.Unlock()
		if !session {
			t.Error("the session was given up for a new one")
		}
		connect(cloud, edge)
	})
}

// While there is a session, two initiations for the next one may undo each other without harm.
func TestCrossingIsNoMatterWhereThereIsASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b, begin := dialBoth(t, func(*memory, *node, *node) {})
		handshaken(a, b, begin)
		connect(a, b)
		time.Sleep(10 * time.Second) // virtual: the session is old enough for the device to initiate again
		before := n.initiationsTo(a.addr, b.addr)
		a.mu.Lock()
		m := &a.peers[b.PublicKey()].machine
		m.Hear(time.Now(), handshake.Event{Kind: handshake.Made, Initiation: handshake.Initiation{Message: make([]byte, handshake.InitiationSize)}}, true)
		m.Poll(time.Now(), true, true)
		m.Hear(time.Now(), handshake.Event{Kind: handshake.Responded}, true)
		m.Hear(time.Now(), handshake.Event{Kind: handshake.ResponseCame}, true)
		a.mu.Unlock()
		a.kick.Set()
		time.Sleep(3 * time.Second) // virtual
		if got := n.initiationsTo(a.addr, b.addr) - before; got > 0 {
			t.Errorf("%d initiations, want none", got)
		}
	})
}

// A path that proves to work is tried soon, although the last dial on it failed.
func TestAPathThatIsFoundToWorkIsTriedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		n.block(func(_, to netip.AddrPort) bool { return to == cloud.addr })
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud"))
		begin := time.Now()
		edge.setPaths(cloud, none, peer.Direct(cloud.addr))
		time.Sleep(oneWay)
		n.block(nil)
		edge.setPaths(cloud, peer.Direct(cloud.addr), peer.Direct(cloud.addr))
		edge.event(HandshakeDone, cloud)
		if took := time.Since(begin); took > newPathWait+tieBreakDelay+4*oneWay {
			t.Errorf("took %v, want %v and a round trip", took, newPathWait+tieBreakDelay)
		}
	})
}

// The side that does not yield must not wait in vain if its own initiation is lost.
func TestLostInitiationLetsThePeersCount(t *testing.T) {
	for name, lost := range map[string]time.Duration{"the first": time.Millisecond, "all for 10 s": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b, begin := dialBoth(t, func(n *memory, a, _ *node) {
					start := time.Now()
					n.lost = func(m []byte, from, _ netip.AddrPort) bool {
						return m[0] == 1 && from == a.addr && time.Since(start) < lost
					}
				})
				if took := handshaken(a, b, begin); took > 250*time.Millisecond+3*far {
					t.Errorf("took %v, want a quarter of a second more than a round trip and a half", took)
				}
				connect(a, b)
			})
		})
	}
}

// If the direct path is open in one direction only, both connect over the other path, whichever
// side yields.
func TestOneWayPathWhileBothDial(t *testing.T) {
	for name, fromInsisting := range map[string]bool{"closed to the side that yields": true, "closed to the side that insists": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b, begin := dialBoth(t, func(n *memory, a, b *node) {
					forward(t, n, via, b.addr)
					n.block(func(from, to netip.AddrPort) bool {
						return from == a.addr && to == b.addr && fromInsisting || from == b.addr && to == a.addr && !fromInsisting
					})
				}, peer.Direct(via))
				if took := handshaken(a, b, begin); took > 8*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// redialled restarts a at an address, and has b dial it right after b has answered a's
// initiation. Messages take oneWay plus late. It returns how long it took until both directions
// work, and how often b dialled.
func redialled(t *testing.T, n *memory, a, b *node, at netip.AddrPort, late func(m []byte, fromB bool) time.Duration) (took time.Duration, dials int) {
	t.Helper()
	answered, bAddr := make(chan struct{}, 16), b.addr
	n.delay(func(m []byte, from, _ netip.AddrPort) time.Duration {
		if m[0] == 2 && from == bAddr {
			select {
			case answered <- struct{}{}:
			default:
			}
		}
		return late(m, from == bAddr)
	})
	a.stop()
	a = startNode(t, n, a.key, at.String())
	begin := time.Now()
	a.set(b.managed("b"))
	a.setPaths(b, peer.Direct(b.addr), peer.Direct(b.addr))
	<-answered
	synctest.Wait()
	before := n.initiationsTo(b.addr, a.addr)
	if err := b.Redial(a.PublicKey()); err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct{ from, to *node }{{a, b}, {b, a}} {
		way.from.send(way.to, "hello")
		way.to.expect(way.from, "hello")
	}
	took = time.Since(begin)
	time.Sleep(3 * time.Second) // virtual: a side that considers the session dead dials again
	return took, n.initiationsTo(b.addr, a.addr) - before
}

// A side that answers an initiation and then dials discards the session that its answer begins.
// The other side may receive the dial before the answer, and take it for one that crossed its
// own. Then it accepts the answer and has a session in which nothing is answered.
func TestADialRightAfterAnAnswer(t *testing.T) {
	const behind = time.Millisecond
	answerLate := func(m []byte, fromB bool) time.Duration {
		if fromB && m[0] == 2 {
			return behind
		}
		return 0
	}
	dialLate := func(m []byte, fromB bool) time.Duration {
		if fromB && m[0] == 1 {
			return behind
		}
		return 0
	}
	dataLate := func() func(m []byte, fromB bool) time.Duration {
		first := true // a's first data comes after its answer to the dial
		return func(m []byte, fromB bool) time.Duration {
			if !fromB && m[0] == 4 && first {
				first = false
				return 5 * behind
			}
			return dialLate(m, fromB)
		}
	}
	longPath := func(m []byte, fromB bool) time.Duration { return 140*time.Millisecond + dialLate(m, fromB) }
	moved := netip.MustParseAddrPort("203.0.113.77:4000")
	for _, c := range []struct {
		name   string
		yields bool // the side that restarts is the one that yields
		late   func(m []byte, fromB bool) time.Duration
		to     netip.AddrPort // where it restarts, if at another address
		most   time.Duration
		dials  int
	}{
		{"in order", false, dialLate, netip.AddrPort{}, 8 * oneWay, 1},
		{"in order, the side that yields", true, dialLate, netip.AddrPort{}, tieBreakDelay + 8*oneWay, 1},
		{"the dial arrives first", false, answerLate, netip.AddrPort{}, 8*oneWay + newPathWait + answerLag, 2},
		{"the dial arrives first, at the side that yields", true, answerLate, netip.AddrPort{}, tieBreakDelay + 8*oneWay, 1},
		{"its answer arrives before data", false, dataLate(), netip.AddrPort{}, 8 * oneWay, 1},
		{"a long path", false, longPath, netip.AddrPort{}, 5 * 150 * time.Millisecond, 1},
		{"it has moved", false, dialLate, moved, 8*oneWay + newPathWait + answerLag, 1},
		{"it has moved, the side that yields", true, dialLate, moved, 8*oneWay + newPathWait + answerLag, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, a, b, begin := dialBoth(t, func(*memory, *node, *node) {})
				handshaken(a, b, begin)
				connect(a, b)
				time.Sleep(10 * time.Second)
				if c.yields {
					a, b = b, a
				}
				at := a.addr
				if c.to.IsValid() {
					at = c.to
					b.setPaths(a, none, peer.Direct(a.addr)) // b does not know a's new address
				}
				if took, dials := redialled(t, n, a, b, at, c.late); took > c.most || dials > c.dials {
					t.Errorf("both ways work after %v and %d dials, want %v and %d at most", took, dials, c.most, c.dials)
				} else {
					t.Logf("both ways work after %v and %d dials", took, dials)
				}
			})
		})
	}
}
