package path_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
)

// The overlay MTU for a path MTU: less WireGuard's 32 bytes and the UDP and IP headers, padded to
// 16 bytes.
func TestThePathMTUIsFound(t *testing.T) {
	for _, c := range []struct{ mtu, overlay int }{
		{1500, 1420}, {1492, 1420}, {1480, 1420}, {1450, 1376}, {1420, 1360}, {1400, 1328}, {1280, 1216}, {1100, 1040}, {1000, 512},
	} {
		for _, loss := range []float64{0, 0.1} {
			t.Run(fmt.Sprintf("%d with loss %v", c.mtu, loss), func(t *testing.T) {
				inWorld(t, uint64(c.mtu), 2000, func(w *world) {
					sa := siteOf(kinds[3], 1)
					sa.link = simnet.Conditions{Delay: 10 * time.Millisecond, MTU: c.mtu, SilentMTU: true, Fragment: true, Loss: loss}
					w.finds(c.overlay, sa, siteOf(kinds[0], 2))
				})
			})
		}
	}
}

// finds lets gateways at two sites meet, and fails unless both find the overlay MTU.
func (w *world) finds(overlay int, sa, sb site) {
	w.t.Helper()
	a, b := w.gateway("a", sa, true), w.gateway("b", sb, false)
	w.meet(a, b)
	w.until(20*time.Second, bothAre(path.KindDirect, a, b))
	took, ok := w.until(20*time.Second, func() bool {
		x, _ := a.status()
		y, _ := b.status()
		return x.MTU == overlay && y.MTU == overlay
	})
	x, _ := a.status()
	y, _ := b.status()
	if !ok {
		w.t.Fatalf("overlay MTU %d and %d, want %d\n%s", x.MTU, y.MTU, overlay, explain(a, b))
	}
	w.t.Logf("known after %v more", took)
}

// With a greater tunnel MTU larger sizes are probed on direct paths, up to the overlay MTU of the
// narrower of the two links. If that is Ethernet with IPv4, more fits than over IPv6.
func TestJumboFramesAreFound(t *testing.T) {
	for _, c := range []struct{ mtu, tunnel, overlay int }{
		{9000, 8920, 8920}, {9000, 9000, 8928}, {8950, 8920, 8880}, {8500, 8920, 8432}, {4092, 8920, 4032}, {1500, 8920, 1440}, {1500, 1440, 1440}, {1280, 8920, 1216},
	} {
		for _, loss := range []float64{0, 0.1} {
			t.Run(fmt.Sprintf("%d of %d with loss %v", c.mtu, c.tunnel, loss), func(t *testing.T) {
				inWorld(t, uint64(c.mtu), 2000, func(w *world) {
					sa, sb := siteOf(kinds[0], 1), siteOf(kinds[0], 2)
					sa.link = simnet.Conditions{Delay: 10 * time.Millisecond, MTU: c.mtu, SilentMTU: true, Fragment: true, Loss: loss}
					sb.link.MTU = 9100
					sa.overlay, sb.overlay = c.tunnel, c.tunnel
					w.finds(c.overlay, sa, sb)
				})
			})
		}
	}
}

// A path silently gets narrower in use: data that does not fit is lost while probes pass. The
// silence makes the sizes be measured again.
func TestABlackHoleForLargePackets(t *testing.T) {
	for _, relay := range []bool{true, false} {
		t.Run(fmt.Sprintf("relay %v", relay), func(t *testing.T) {
			inWorld(t, 1, 2000, func(w *world) {
				sa, sb := siteOf(kinds[3], 1), siteOf(kinds[0], 2)
				sa.relay, sb.relay = relay, relay
				a, b := w.gateway("a", sa, false), w.gateway("b", sb, true)
				w.meet(b, a)
				w.until(10*time.Second, bothAre(path.KindDirect, a, b))
				for _, g := range []*gateway{a, b} {
					g.mu.Lock()
					g.dataSize = 1452
					g.mu.Unlock()
				}
				setTraffic(true, a, b)
				time.Sleep(30 * time.Second)
				began := time.Now()
				for _, way := range []simnet.Direction{simnet.Up, simnet.Down} {
					c := simnet.Conditions{Delay: 10 * time.Millisecond, MTU: 1280, SilentMTU: true}
					if err := a.uplink().SetConditions(way, c); err != nil {
						w.t.Fatal(err)
					}
				}
				time.Sleep(3 * time.Minute)
				for _, g := range []*gateway{a, b} {
					s, _ := g.status()
					if s.MTU != 1216 || s.Kind != path.KindDirect {
						w.t.Errorf("%s: %s with overlay MTU %d, want direct with 1216\n%s", g.name, s.Kind, s.MTU, explain(a, b))
					}
					gap := g.gap(began)
					w.t.Logf("%s: %v without data", g.name, gap)
					if gap > 10*time.Second {
						w.t.Errorf("%s: %v without data, want at most 10 s\n%s", g.name, gap, explain(a, b))
					}
				}
			})
		})
	}
}
