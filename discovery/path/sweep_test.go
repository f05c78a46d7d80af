package path_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
)

// relayedPair is two gateways behind symmetric NATs, connected only by one relay.
func relayedPair(w *world) (a, b *gateway) {
	w.t.Helper()
	a, b = w.gateway("a", siteOf(kinds[5], 1), true), w.gateway("b", siteOf(kinds[5], 2), false)
	w.meet(a, b)
	if _, ok := w.until(5*time.Second, bothAre(path.KindRelay, a, b)); !ok {
		w.t.Fatalf("not relayed\n%s", explain(a, b))
	}
	setTraffic(true, a, b)
	time.Sleep(20 * time.Second)
	return a, b
}

// noticeLoss acts like the TURN client when it finds its allocation lost; it waits until each
// gateway has another.
func noticeLoss(gs ...*gateway) {
	for _, g := range gs {
		g.mu.Lock()
		clear(g.vias)
		g.setLocal(time.Now())
		_, _ = g.conn.WriteToUDPAddrPort(packet(kAllocate, serverPayload, 0), g.w.servers[0].addr)
		g.mu.Unlock()
		g.kick()
	}
	for _, g := range gs {
		g.w.until(time.Minute, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.gathered()
		})
	}
}

// relayedSince reports whether the gateways have proved a relayed path since a time.
func relayedSince(when time.Time, gs ...*gateway) bool {
	for _, g := range gs {
		s, connected := g.status()
		if s.Kind != path.KindRelay || !connected || !s.Proven.After(when.Add(200*time.Millisecond)) {
			return false
		}
	}
	return true
}

// wrapped counts the datagrams that a gateway sends through a relay.
func wrapped(g *gateway) *atomic.Int64 {
	n := new(atomic.Int64)
	g.host.Link().Tap(func(d simnet.Datagram, way simnet.Direction) {
		if way == simnet.Up && d.Payload[0] == kSend && d.Payload[serverPayload] == kProbe {
			n.Add(1)
		}
	})
	return n
}

// searched returns how many ports a gateway has probed for its peer.
func searched(g *gateway) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// noted counts the notes whose event has the prefix.
func noted(g *gateway, event string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.events {
		if strings.HasPrefix(e, event) {
			n++
		}
	}
	return n
}

// The only relay loses the allocations of both sides while another path over it seems to work: the
// one without our own allocation, to the peer's. It is chosen, and found dead. That ends no search.
func TestTheOnlyRelayLosesBothSoon(t *testing.T) {
	seeds := uint64(20)
	if raceDetector {
		seeds = 4
	}
	for seed := range seeds {
		inWorld(t, seed, -1, func(w *world) {
			a, b := w.gateway("a", siteOf(kinds[5], 1), true), w.gateway("b", siteOf(kinds[5], 2), false)
			w.meet(a, b)
			if _, ok := w.until(5*time.Second, bothAre(path.KindRelay, a, b)); !ok {
				w.t.Fatalf("not relayed\n%s", explain(a, b))
			}
			setTraffic(true, a, b)
			time.Sleep(time.Duration(seed) * 200 * time.Millisecond)
			w.servers[0].lose()
			lost := time.Now()
			noticeLoss(a, b)
			if _, ok := w.until(time.Minute, func() bool { return relayedSince(lost, a, b) }); !ok {
				w.t.Errorf("seed %d: not relayed again\n%s", seed, explain(a, b))
			}
		})
	}
}

// The only relay loses the allocations of both sides: they find each other's new ports.
func TestTheOnlyRelayLosesBoth(t *testing.T) {
	var longest time.Duration
	named, seeds := 0, uint64(20)
	if raceDetector {
		seeds = 1
	}
	for seed := range seeds {
		inWorld(t, seed, -1, func(w *world) {
			a, b := relayedPair(w)
			before := a.ticket()
			w.servers[0].lose()
			for _, g := range []*gateway{a, b} {
				if s, _ := g.status(); s.RelayLost != nil {
					w.t.Errorf("%s calls the relay lost before it is: %v", g.name, s.RelayLost)
				}
			}
			asked := func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.doubts > 0
			}
			if asked() {
				w.t.Error("the allocations were in doubt before")
			}
			if took, ok := w.until(6*time.Second, asked); !ok {
				w.t.Errorf("nobody looks after the allocations %v after they were lost", took)
			}
			lost, sent := time.Now(), wrapped(a)
			noticeLoss(a, b)
			_, ok := w.until(time.Minute, func() bool {
				s, _ := a.status()
				if l := s.RelayLost; l != nil {
					named++
					if l.Server != w.servers[0].addr.String() || l.Was == l.Now || l.Was.Addr() != l.Now.Addr() || l.At.IsZero() ||
						s.Reason != l.String() || !strings.Contains(s.Reason, "a new ticket") || s.NextTry.IsZero() {
						w.t.Errorf("got %+v, the reason %q and the next try %v", l, s.Reason, s.NextTry)
					}
				}
				return relayedSince(lost, a, b)
			})
			if !ok {
				w.t.Fatalf("not relayed again\n%s", explain(a, b))
			}
			longest = max(longest, time.Since(lost))
			if slices.Equal(a.ticket(), before) {
				w.t.Fatal("the relay gave the same address again")
			}
			if s, _ := a.status(); s.RelayLost != nil {
				w.t.Errorf("it is called lost still: %v", s.RelayLost)
			}
			n := sent.Load()
			time.Sleep(time.Minute)
			if more := sent.Load() - n; n > 16384+200 || more > 200 {
				w.t.Errorf("%d probes until the peer was found and %d in the minute after that", n, more)
			}
		})
	}
	t.Logf("relayed again after at most %v", longest)
	if named == 0 {
		t.Error("it is never said that the relay lost both")
	}
	if longest > 10*time.Second {
		t.Errorf("relayed again after %v, want at most 10 s", longest)
	}
}

// A peer that is suspended during the search for its new port is found once it is back. Ports are
// probed in rounds with pauses between.
func TestTheSearchIsRepeated(t *testing.T) {
	inWorld(t, 3, -1, func(w *world) {
		a, b := relayedPair(w)
		b.stop(true)
		w.servers[0].lose()
		noticeLoss(a)
		sent := wrapped(a)
		time.Sleep(10 * time.Minute)
		if n := sent.Load(); n < 4*16383 || n > 4*16383+500 {
			w.t.Errorf("%d probes in 10 min, want four rounds of 16,383", n)
		}
		back := time.Now()
		noticeLoss(b)
		b.stop(false)
		took, ok := w.until(20*time.Second, func() bool { return relayedSince(back, a, b) })
		if !ok {
			w.t.Fatalf("not relayed again\n%s", explain(a, b))
		}
		w.t.Logf("relayed %v after the peer was back", took)
	})
}

// A relay with a configured port range is searched around the peer's last port.
func TestPortsOfAnotherRangeAreFound(t *testing.T) {
	inWorld(t, 5, -1, func(w *world) {
		a, b := relayedPair(w)
		for _, told := range []bool{true, false, false} { // into that range, then within it
			w.servers[0].mu.Lock()
			w.servers[0].ports = [2]int{1 << 14, 4000}
			w.servers[0].mu.Unlock()
			w.servers[0].lose()
			lost := time.Now()
			noticeLoss(a, b)
			if told {
				news := a.ticket()
				b.tell(func(now time.Time, m *path.Machine) { m.SetRemote(now, news, false) })
			}
			if _, ok := w.until(time.Minute, func() bool { return relayedSince(lost, a, b) }); !ok {
				w.t.Fatalf("not relayed again\n%s", explain(a, b))
			}
		}
	})
}

// Nothing is searched for unless a relay lost an allocation.
func TestAPathThatFailsIsNoReasonToSearch(t *testing.T) {
	inWorld(t, 4, -1, func(w *world) {
		a, b := relayedPair(w)
		b.stop(true)
		sent := wrapped(a)
		time.Sleep(5 * time.Minute)
		if s, _ := a.status(); s.Kind != path.KindNone || s.RelayLost != nil {
			w.t.Errorf("kind %s, lost %v, want none and nothing", s.Kind, s.RelayLost)
		}
		if n := sent.Load(); n > 400 {
			w.t.Errorf("%d probes over the relay in 5 min without an answer", n)
		}
	})
}
