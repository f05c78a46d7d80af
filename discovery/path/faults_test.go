package path_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
)

// between drops packets that cross a link between the two gateways themselves, but not those to
// and from the servers.
func between(out, in bool) simnet.Firewall {
	server := func(a netip.AddrPort) bool { return a.Addr() == serverAddrs[0] || a.Addr() == serverAddrs[1] }
	return simnet.Firewall{Drop: func(d simnet.Datagram, leaves bool) bool {
		if server(d.Src) || server(d.Dst) {
			return false
		}
		return leaves && out || !leaves && in
	}}
}

// connected returns two gateways that use a direct path and carry traffic.
func connected(w *world, a, b site) (ga, gb *gateway) {
	ga, gb = w.gateway("a", a, true), w.gateway("b", b, false)
	w.meet(ga, gb)
	if _, ok := w.until(10*time.Second, bothAre(path.KindDirect, ga, gb)); !ok {
		w.t.Fatalf("not direct\n%s", explain(ga, gb))
	}
	setTraffic(true, ga, gb)
	time.Sleep(20 * time.Second)
	return ga, gb
}

func TestFaultsAreRepaired(t *testing.T) {
	dial, restricted := kinds[0], kinds[3]
	for _, c := range []struct {
		name  string
		a, b  kind
		fault func(w *world, a, b *gateway)
		gap   time.Duration // the longest time without data
		ends  string        // kind of path before the fault is fixed
		fix   func(w *world, a, b *gateway)
		back  time.Duration // to the direct path once fixed
	}{
		{"the direct path is a black hole", restricted, dial, func(_ *world, a, _ *gateway) {
			a.uplink().SetFirewall(between(true, true))
		}, 7 * time.Second, path.KindRelay, func(_ *world, a, _ *gateway) {
			a.uplink().SetFirewall(simnet.Firewall{})
		}, 6 * time.Minute},
		{"nothing gets from a to b", restricted, dial, func(_ *world, a, _ *gateway) {
			a.uplink().SetFirewall(between(true, false))
		}, 7 * time.Second, path.KindRelay, func(_ *world, a, _ *gateway) {
			a.uplink().SetFirewall(simnet.Firewall{})
		}, 6 * time.Minute},
		{"nothing gets from b to a", restricted, dial, func(_ *world, a, _ *gateway) {
			a.uplink().SetFirewall(between(false, true))
		}, 7 * time.Second, path.KindRelay, func(_ *world, a, _ *gateway) {
			a.uplink().SetFirewall(simnet.Firewall{})
		}, 6 * time.Minute},
		{"probes pass and data does not", dial, dial, func(_ *world, a, b *gateway) {
			direct := between(true, true).Drop
			a.uplink().SetFirewall(simnet.Firewall{Drop: func(d simnet.Datagram, out bool) bool {
				return d.Payload[0] == kData && direct(d, out)
			}})
		}, 10 * time.Second, path.KindRelay, func(_ *world, a, _ *gateway) {
			a.uplink().SetFirewall(simnet.Firewall{})
		}, 6 * time.Minute},
		{"a's NAT restarts", kinds[1], dial, func(_ *world, a, _ *gateway) {
			a.nat.Reboot()
		}, 7 * time.Second, path.KindDirect, nil, 0},
		{"a's NAT takes other ports", site{}.changing(), dial, func(_ *world, a, _ *gateway) {
			a.nat.Reboot()
		}, 7 * time.Second, path.KindDirect, nil, 0},
		{"a's NAT restarts on a punched path", restricted, restricted, func(_ *world, a, _ *gateway) {
			a.nat.Reboot()
		}, 7 * time.Second, path.KindDirect, nil, 0},
		{"a is on another network", restricted, dial, func(w *world, a, _ *gateway) {
			if err := a.nat.SetAddrs(netip.MustParseAddr("203.0.113.77")); err != nil {
				w.t.Fatal(err)
			}
			a.tell(func(now time.Time, m *path.Machine) { m.NetworkChanged(now) })
		}, 7 * time.Second, path.KindDirect, nil, 0},
		{"b restarts", restricted, dial, func(_ *world, _, b *gateway) { b.restart() }, 10 * time.Second, path.KindDirect, nil, 0},
		{"a restarts", restricted, dial, func(_ *world, a, _ *gateway) { a.restart() }, 10 * time.Second, path.KindDirect, nil, 0},
		{"both restart on a punched path", restricted, restricted, func(_ *world, a, b *gateway) {
			a.restart()
			b.restart()
		}, 10 * time.Second, path.KindDirect, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 3, 3000, func(w *world) {
				a, b := connected(w, siteOf(c.a, 1), siteOf(c.b, 2))
				began := time.Now()
				c.fault(w, a, b)
				time.Sleep(25 * time.Second)
				for _, g := range []*gateway{a, b} {
					gap := g.gap(began)
					w.t.Logf("%s: %v without data", g.name, gap)
					if gap > c.gap {
						w.t.Errorf("%s had no data for %v, want at most %v\n%s", g.name, gap, c.gap, explain(a, b))
					}
				}
				if _, ok := w.until(time.Minute, bothAre(c.ends, a, b)); !ok {
					w.t.Errorf("not %s\n%s", c.ends, explain(a, b))
				}
				if c.fix == nil {
					return
				}
				c.fix(w, a, b)
				fixed := time.Now()
				took, ok := w.until(c.back, bothAre(path.KindDirect, a, b))
				if !ok {
					w.t.Fatalf("not direct %v after it was fixed\n%s", c.back, explain(a, b))
				}
				time.Sleep(10 * time.Second)
				gap := max(a.gap(fixed), b.gap(fixed))
				w.t.Logf("direct again after %v, %v without data", took, gap)
				if gap > 500*time.Millisecond {
					w.t.Errorf("%v without data on the way back, want no stall\n%s", gap, explain(a, b))
				}
			})
		})
	}
}

// changing is a NAT that maps endpoint-independently to random ports.
func (site) changing() kind {
	return kind{"port-changing", simnet.PortChanging, "endpoint-independent", "address-and-port-dependent", path.StraysDropped}
}

func TestLossAloneMovesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b kind
		kind string
	}{
		{"direct", kinds[3], kinds[0], path.KindDirect},
		{"relayed", kinds[5], kinds[5], path.KindRelay},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 5, -1, func(w *world) {
				a, b := w.gateway("a", siteOf(c.a, 1), true), w.gateway("b", siteOf(c.b, 2), false)
				w.meet(a, b)
				if _, ok := w.until(10*time.Second, bothAre(c.kind, a, b)); !ok {
					w.t.Fatalf("not %s\n%s", c.kind, explain(a, b))
				}
				time.Sleep(20 * time.Second)
				lossy := simnet.Conditions{Delay: 10 * time.Millisecond, Loss: 0.1}
				for _, way := range []simnet.Direction{simnet.Up, simnet.Down} {
					if err := a.uplink().SetConditions(way, lossy); err != nil {
						w.t.Fatal(err)
					}
				}
				before := a.switched() + b.switched()
				seconds := 3600
				if raceDetector {
					seconds = 450
				}
				for range seconds { // traffic, as the driver reports it
					time.Sleep(time.Second)
					for _, g := range []*gateway{a, b} {
						g.tell(func(now time.Time, m *path.Machine) { m.Traffic(now) })
					}
				}
				if n := a.switched() + b.switched() - before; n != 0 {
					w.t.Errorf("%d switches in an hour of 10 %% loss\n%s", n, explain(a, b))
				}
			})
		})
	}
}

func (g *gateway) switched() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.switches
}

// Data is blocked while probes pass, and one side notices first and leaves the path. The other
// then hears it over the relay and does not notice by itself.
func TestThePeerFollowsAPathChangeForSilence(t *testing.T) {
	for seed := range few(10) {
		inWorld(t, seed, 2000, func(w *world) {
			a, b := connected(w, siteOf(kinds[3], 1), siteOf(kinds[0], 2))
			direct := between(true, true).Drop
			a.uplink().SetFirewall(simnet.Firewall{Drop: func(d simnet.Datagram, out bool) bool {
				return d.Payload[0] == kData && direct(d, out)
			}})
			began := time.Now()
			time.Sleep(time.Duration(w.dice.IntN(3000)) * time.Millisecond)
			first := []*gateway{a, b}[seed%2]
			first.tell(func(now time.Time, m *path.Machine) { m.Silent(now) })
			time.Sleep(20 * time.Second)
			if !bothAre(path.KindRelay, a, b)() {
				w.t.Errorf("not relayed on both sides\n%s", explain(a, b))
			}
			if gap := max(a.gap(began), b.gap(began)); gap > 10*time.Second {
				w.t.Errorf("%v without data, want at most 10 s\n%s", gap, explain(a, b))
			}
		})
	}
}
