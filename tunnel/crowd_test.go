package tunnel

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// crowd returns n peers that never answer. With many peers, readings of the device are shared for
// a while.
func crowd(t *testing.T, n int) []peer.Config {
	t.Helper()
	all := make([]peer.Config, n)
	for i := range all {
		all[i] = peer.Config{Name: fmt.Sprintf("absent-%d", i), PublicKey: newKey(t).Public()}
	}
	return all
}

// A dial that was planned before the session was established does not discard it, although the last
// reading does not show the session.
func TestADialInACrowdSparesTheSessionJustMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		n.block(func(_, _ netip.AddrPort) bool { return true })
		cloud.set(append(crowd(t, 220), edge.as("edge", edge.addr))...)
		edge.set(cloud.as("cloud", cloud.addr))
		waitFor(t, "the third dial", func() bool { return cloud.stats(edge).Attempts == 3 })

		next := cloud.stats(edge).NextTry
		time.Sleep(time.Until(next) - 5*oneWay) // virtual
		before := n.initiationsTo(cloud.addr, edge.addr)
		if _, err := cloud.readings.now(); err != nil {
			t.Fatal(err)
		}
		n.block(nil)
		if err := edge.Redial(cloud.PublicKey()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * oneWay) // virtual: an initiation, its response and the confirmation of the session
		edge.send(cloud, "before")
		cloud.expect(edge, "before")

		time.Sleep(time.Until(next) + 2*time.Second) // virtual
		if got := n.initiationsTo(cloud.addr, edge.addr); got != before {
			t.Errorf("%d initiations were sent to a peer that had just come", got-before)
		}
		if s := cloud.stats(edge); s.LastHandshake.IsZero() || !s.NextTry.IsZero() {
			t.Errorf("the session is not seen: %+v", s)
		}
	})
}

// Among many peers, an absent peer is dialled as often as alone.
func TestACrowdIsDialledThoughReadingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		away := crowd(t, 80)
		for i := range away {
			away[i].Endpoints = []netip.AddrPort{edge.addr}
		}
		cloud.set(away...)
		time.Sleep(20 * time.Second) // virtual
		// Dials are 1, 2, 4 and 8 s apart, and up to a quarter and a half of that more.
		for _, p := range cloud.Snapshot().Peers {
			if p.Attempts < 4 || p.Attempts > 5 {
				t.Fatalf("%s: %d dials in 20 s, want 4 or 5", p.Name, p.Attempts)
			}
		}
	})
}

// When a peer is removed and added again, its old counters are forgotten, even if the last
// reading is still shared.
func TestAPeerThatIsAddedAgainInACrowdStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		many := crowd(t, 600)
		cloud.set(append(many, edge.managed("edge"))...)
		edge.set(cloud.managed("cloud"))
		edge.setPaths(cloud, none, peer.Direct(cloud.addr))
		connect(cloud, edge)
		time.Sleep(3 * time.Second) // virtual: its counters were read
		if s := cloud.stats(edge); s.LastHandshake.IsZero() || s.RxBytes == 0 {
			t.Fatalf("got %+v, want a session", s)
		}
		edge.stop()
		cloud.set(many...)
		cloud.set(append(many, edge.managed("edge"))...)
		synctest.Wait()
		if s := cloud.stats(edge); !s.LastHandshake.IsZero() || s.RxBytes != 0 {
			t.Errorf("got %+v, want nothing of before", s)
		}
	})
}
