package path_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
)

// dayOfUpkeep is what path upkeep may cost an idle peer per day, in bytes of IP packets.
const dayOfUpkeep = 1_000_000

// ipHeaders are those of IPv4 and UDP. Over IPv6 they are longer, and so is the address in an
// answer.
const (
	ipHeaders   = 28
	ipv6Headers = 48
	ipv6Answer  = 12
)

// A day without traffic, behind NATs that forget everything after 30 s: the path is never lost,
// and its upkeep stays within the limit.
func TestAnIdleDay(t *testing.T) {
	hours := 24
	if raceDetector {
		hours = 1
	}
	forgetful := func(b *simnet.Behaviour) { b.Timeout, b.Unreplied = 30*time.Second, 30*time.Second }
	for _, c := range []struct {
		name string
		a, b kind
		kind string
	}{
		{"one NAT", kinds[3], kinds[0], path.KindDirect},
		{"punched", kinds[3], kinds[4], path.KindDirect},
		{"relayed", kinds[5], kinds[3], path.KindRelay},
		{"relayed, filtering not known", kinds[5], kinds[3], path.KindRelay},
		{"IPv6", kinds[0], kinds[0], path.KindDirect},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 6, -1, func(w *world) {
				sa, sb := siteOf(c.a, 1), siteOf(c.b, 2)
				sa.tune, sb.tune = forgetful, forgetful
				sa.blind = c.name == "relayed, filtering not known"
				sb.blind = sa.blind
				if c.name == "IPv6" {
					sa.onIPv6(1)
					sb.onIPv6(2)
				}
				a, b := w.gateway("a", sa, true), w.gateway("b", sb, false)
				w.meet(a, b)
				if _, ok := w.until(10*time.Second, bothAre(c.kind, a, b)); !ok {
					w.t.Fatalf("not %s\n%s", c.kind, explain(a, b))
				}
				time.Sleep(time.Minute)
				before := a.switched() + b.switched()
				upkeep := new(atomic.Int64)
				for _, g := range []*gateway{a, b} {
					defer g.host.Link().Tap(func(d simnet.Datagram, way simnet.Direction) {
						if size := upkeepSize(d); size > 0 && way == simnet.Up {
							upkeep.Add(int64(size))
						}
					})()
				}
				time.Sleep(time.Duration(hours) * time.Hour)
				if n := a.switched() + b.switched() - before; n != 0 || !bothAre(c.kind, a, b)() {
					w.t.Errorf("%d switches while idle\n%s", n, explain(a, b))
				}
				bytes, allowed := upkeep.Load(), int64(dayOfUpkeep*hours/24)
				w.t.Logf("%d bytes in %d h", bytes, hours)
				if !raceDetector && bytes > allowed { // the first hours cost more than the rest
					w.t.Errorf("%d bytes of upkeep, want at most %d", bytes, allowed)
				}
				for _, g := range []*gateway{a, b} {
					if s, _ := g.status(); time.Since(s.Proven) > time.Minute {
						w.t.Errorf("%s has no proof younger than %v", g.name, time.Since(s.Proven))
					}
				}
			})
		})
	}
}

// upkeepSize is the size of a probe or an answer as an IP packet. A relay's overhead, handshakes
// and refreshes with servers do not count.
func upkeepSize(d simnet.Datagram) int {
	b := d.Payload
	if b[0] == kSend && len(b) > serverPayload {
		b = b[serverPayload:]
	}
	if b[0] != kProbe && b[0] != kAnswer {
		return 0
	}
	switch {
	case d.Dst.Addr().Is4():
		return len(b) + ipHeaders
	case b[0] == kAnswer:
		return len(b) + ipv6Headers + ipv6Answer
	}
	return len(b) + ipv6Headers
}

// If the first packet after a quiet time finds the path dead, it is repaired in 7 s. A path that
// dies without any traffic is replaced within 30 s.
func TestAPathThatDiesWhileIdle(t *testing.T) {
	for _, c := range []struct {
		name    string
		traffic bool
		within  time.Duration
	}{{"traffic resumes", true, 7 * time.Second}, {"nobody asks", false, 30 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(10) {
				inWorld(t, seed, 2000, func(w *world) {
					a, b := w.gateway("a", siteOf(kinds[3], 1), seed%2 == 0), w.gateway("b", siteOf(kinds[0], 2), seed%2 == 1)
					w.meet(a, b)
					w.until(10*time.Second, bothAre(path.KindDirect, a, b))
					time.Sleep(5*time.Minute + time.Duration(seed*2)*time.Second)
					a.uplink().SetFirewall(between(true, true))
					began := time.Now()
					if c.traffic {
						setTraffic(true, a, b)
					}
					took, ok := w.until(c.within, bothAre(path.KindRelay, a, b))
					if !ok {
						w.t.Fatalf("not on the relay %v after the path died\n%s", time.Since(began), explain(a, b))
					}
					w.t.Logf("on the relay after %v", took)
				})
			}
		})
	}
}
