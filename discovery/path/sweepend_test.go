//go:build !race

package path_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
)

// A peer that stays away is searched for in seven rounds, of which the first two and the end are
// noted, and again when it has another address. These are 230,000 probes, half a minute under the
// race detector, which has TestTheSearchIsRepeated.
func TestTheSearchEnds(t *testing.T) {
	inWorld(t, 3, -1, func(w *world) {
		a, b := relayedPair(w)
		setTraffic(false, a, b)
		b.stop(true)
		w.servers[0].lose()
		noticeLoss(a)
		time.Sleep(time.Minute)
		if s, _ := a.status(); s.RelayLost == nil || s.RelayLost.Next.IsZero() || !strings.Contains(s.Reason, "(next round at ") {
			w.t.Errorf("between two rounds: %+v, the reason is %q", s.RelayLost, s.Reason)
		}
		const round = 16383
		want := 7 * round
		for day := range 3 {
			time.Sleep(24 * time.Hour)
			if n := searched(a); n != want {
				w.t.Errorf("%d ports asked by day %d, want %d", n, day+1, want)
			}
		}
		s, _ := a.status()
		if l := s.RelayLost; l == nil || !l.Ended || !l.Next.IsZero() || l.Searching || !strings.Contains(s.Reason, "has ended") {
			w.t.Errorf("after days: %+v, the reason is %q", l, s.Reason)
		}
		a.tell(func(now time.Time, m *path.Machine) {
			m.SetRemote(now, []path.Candidate{{Addr: netip.MustParseAddrPort("203.0.113.77:7"), Source: path.SourceAdvertised}}, false)
		})
		time.Sleep(300 * time.Millisecond)
		if s, _ := a.status(); s.RelayLost == nil || !s.RelayLost.Searching || !strings.Contains(s.Reason, "is searched for at the relay's ports;") {
			w.t.Errorf("with a new address of the peer: %+v, the reason is %q", s.RelayLost, s.Reason)
		}
		time.Sleep(24 * time.Hour)
		if n := searched(a); n != 2*want {
			w.t.Errorf("%d ports asked after the peer had a new address, want %d", n, 2*want)
		}
		if began, ended := noted(a, "asking the ports"), noted(a, "the search among"); began != 2*2 || ended != 2 {
			w.t.Errorf("%d notes of rounds and %d of the end, want 4 and 2", began, ended)
		}
	})
}
