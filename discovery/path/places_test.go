package path_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
)

// One direction of the direct path is blocked from the start. The handshake completes over the
// relay, and data flows both ways.
func TestOneWayFromTheStart(t *testing.T) {
	for _, c := range []struct {
		name    string
		out, in bool // what b's link drops
	}{{"nothing gets from b to a", true, false}, {"nothing gets from a to b", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range few(4) {
				inWorld(t, seed, 2000, func(w *world) {
					a, b := w.gateway("a", siteOf(kinds[0], 1), seed%2 == 0), w.gateway("b", siteOf(kinds[0], 2), seed%2 == 1)
					b.uplink().SetFirewall(between(c.out, c.in))
					w.meet(a, b)
					took, ok := w.until(5*time.Second, bothAre(path.KindRelay, a, b))
					if !ok {
						w.t.Fatalf("not relayed\n%s", explain(a, b))
					}
					setTraffic(true, a, b)
					began := time.Now()
					time.Sleep(2 * time.Minute)
					if gap := max(a.gap(began), b.gap(began)); gap > time.Second {
						w.t.Errorf("%v without data\n%s", gap, explain(a, b))
					}
					w.t.Logf("relayed after %v", took)
				})
			}
		})
	}
}

func TestWithoutAnyRelay(t *testing.T) {
	for _, c := range []struct {
		a, b   kind
		within time.Duration
	}{
		{kinds[0], kinds[5], time.Second},
		{kinds[1], kinds[5], time.Second}, // a full cone lets in the joiner
	} {
		t.Run(c.a.name+" invites "+c.b.name, func(t *testing.T) {
			inWorld(t, 1, 2000, func(w *world) {
				sa, sb := siteOf(c.a, 1), siteOf(c.b, 2)
				sa.relay, sb.relay = false, false
				a, b := w.gateway("a", sa, true), w.gateway("b", sb, false)
				w.meet(a, b)
				if _, ok := w.until(c.within, bothAre(path.KindDirect, a, b)); !ok {
					w.t.Errorf("not direct within %v\n%s", c.within, explain(a, b))
				}
			})
		})
	}
	// Both restrict by port; an exchange of tickets gave each the other's candidates.
	t.Run("blind on both sides", func(t *testing.T) {
		for seed := range few(20) {
			inWorld(t, seed, 2000, func(w *world) {
				sa, sb := siteOf(kinds[3], 1), siteOf(kinds[3], 2)
				sa.relay, sb.relay = false, false
				a, b := w.gateway("a", sa, true), w.gateway("b", sb, false)
				w.meet(a, b)
				time.Sleep(time.Duration(seed) * 3 * time.Second)
				known := b.ticket()
				a.tell(func(now time.Time, m *path.Machine) { m.SetRemote(now, known, false) })
				if _, ok := w.until(90*time.Second, bothAre(path.KindDirect, a, b)); !ok {
					w.t.Errorf("not direct\n%s", explain(a, b))
				}
			})
		}
	})
}

func TestBehindOneNAT(t *testing.T) {
	inWorld(t, 1, 2000, func(w *world) {
		sa, sb := siteOf(kinds[3], 1), siteOf(kinds[3], 2)
		a := w.gateway("a", sa, true)
		sb.within, sb.host, sb.wan = a.nat.Inside(), netip.MustParseAddr("10.1.0.3"), sa.wan
		b := w.gateway("b", sb, false)
		w.meet(a, b)
		if took, ok := w.until(time.Second, bothAre(path.KindDirect, a, b)); !ok {
			w.t.Fatalf("not direct after %v\n%s", took, explain(a, b))
		}
		for _, g := range []*gateway{a, b} {
			if s, _ := g.status(); !s.Selected.Remote.Addr().IsPrivate() || !strings.Contains(s.Reason, "local network") {
				w.t.Errorf("%s uses %v (%s), want the local network", g.name, s.Selected, s.Reason)
			}
		}
	})
}

// An older gateway answers no probes and reads no messages. Handshakes prove its paths, and only
// silence disproves them.
func TestAnOlderPeer(t *testing.T) {
	inWorld(t, 1, 2000, func(w *world) {
		sa, sb := siteOf(kinds[0], 1), siteOf(kinds[3], 2)
		sa.noProbe = true
		a, b := w.gateway("a", sa, true), w.gateway("b", sb, false)
		w.meet(a, b)
		if _, ok := w.until(5*time.Second, bothAre(path.KindDirect, b)); !ok {
			w.t.Fatalf("not direct\n%s", explain(a, b))
		}
		setTraffic(true, a, b)
		time.Sleep(5 * time.Minute)
		if s, _ := b.status(); s.Kind != path.KindDirect || b.switched() != 0 {
			w.t.Errorf("%d switches, now %s\n%s", b.switched(), s.Kind, explain(b))
		}
		b.uplink().SetFirewall(between(true, true))
		began := time.Now()
		if took, ok := w.until(30*time.Second, bothAre(path.KindRelay, b)); !ok {
			w.t.Errorf("not relayed after %v\n%s", took, explain(a, b))
		}
		w.t.Logf("relayed after %v", time.Since(began))
	})
}

// The process is suspended for a while, and the network changes meanwhile.
func TestSleepAndResume(t *testing.T) {
	inWorld(t, 1, 2000, func(w *world) {
		a, b := connected(w, siteOf(kinds[3], 1), siteOf(kinds[0], 2))
		a.stop(true)
		time.Sleep(10 * time.Minute)
		if err := a.nat.SetAddrs(netip.MustParseAddr("203.0.113.77")); err != nil {
			w.t.Fatal(err)
		}
		a.stop(false)
		began := time.Now()
		time.Sleep(15 * time.Second)
		if gap := max(a.gap(began), b.gap(began)); gap > 10*time.Second {
			w.t.Errorf("%v without data after resuming\n%s", gap, explain(a, b))
		}
		if _, ok := w.until(30*time.Second, bothAre(path.KindDirect, a, b)); !ok {
			w.t.Errorf("not direct\n%s", explain(a, b))
		}
	})
}

// Ten thousand candidates cost neither memory nor packets.
func TestHostileCandidates(t *testing.T) {
	inWorld(t, 1, -1, func(w *world) {
		a, b := connected(w, siteOf(kinds[3], 1), siteOf(kinds[0], 2))
		sources := []string{path.SourceHost, path.SourceSTUN, path.SourceAdvertised, path.SourceRelay, path.SourceLAN, "made-up"}
		sent := make(map[netip.Addr]bool)
		probes := 0
		untap := a.host.Link().Tap(func(d simnet.Datagram, way simnet.Direction) {
			if way == simnet.Up && d.Payload[0] == kProbe {
				sent[d.Dst.Addr()] = true
				probes++
			}
		})
		began, before := time.Now(), a.switched()+b.switched()
		for round := range few(10) {
			var cs []path.Candidate
			for i := range 10_000 {
				ip := netip.AddrFrom4([4]byte{100, byte(round), byte(i >> 8), byte(i)})
				switch i % 7 {
				case 1:
					ip = netip.AddrFrom4([4]byte{127, 0, byte(i >> 8), byte(i)})
				case 2:
					ip = netip.AddrFrom4([4]byte{169, 254, 169, 254})
				case 3:
					ip = netip.AddrFrom4([4]byte{224, 0, byte(i >> 8), byte(i)})
				case 4:
					ip = netip.IPv6LinkLocalAllNodes()
				}
				cs = append(cs, path.Candidate{Addr: netip.AddrPortFrom(ip, uint16(i)), Source: sources[i%len(sources)]})
			}
			a.tell(func(now time.Time, m *path.Machine) { m.SetRemote(now, cs, true) })
			time.Sleep(5 * time.Second)
			if s, _ := a.status(); len(s.Candidates) > 120 || len(s.History) > 32 {
				w.t.Fatalf("round %d: %d pairs, %d notes", round, len(s.Candidates), len(s.History))
			}
		}
		untap()
		for ip := range sent {
			if ip.IsLoopback() || ip.IsMulticast() || ip.IsLinkLocalUnicast() {
				w.t.Errorf("probes to %v", ip)
			}
		}
		if rate := float64(probes) / time.Since(began).Seconds(); rate > 20 {
			w.t.Errorf("%.1f probes a second, want at most 20", rate)
		}
		if s, _ := a.status(); s.Kind != path.KindDirect || a.switched()+b.switched() != before {
			w.t.Errorf("the path was disturbed\n%s", explain(a))
		}
		a.tell(func(time.Time, *path.Machine) {
			if n := len(a.routing.Initiate); n > peer.MaxPaths {
				w.t.Errorf("initiations go to %d paths", n)
			}
		})
	})
}
