package discovery_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestSightTellsWhoWasHeard(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		if s := cloud.pf.Sight(edge.public()); !s.RequestAt.IsZero() || s.RequestFrom.IsValid() || s.Boots != nil {
			t.Errorf("before anything came: got %+v", s)
		}
		began := time.Now()
		edge.know(cloud, advertised("203.0.113.1:51820"))
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		s := cloud.pf.Sight(edge.public())
		if s.RequestAt.Before(began) || s.RequestAt.After(time.Now()) || s.RequestFrom != netip.MustParseAddrPort("203.0.113.2:51820") {
			t.Errorf("got a request at %v from %v, want one since %v from edge", s.RequestAt, s.RequestFrom, began)
		}
		if !slices.Equal(s.Boots, []uint64{1}) || len(s.BootsAt) != 1 || s.BootsAt[0].Before(began) {
			t.Errorf("boots: got %v at %v, want 1", s.Boots, s.BootsAt)
		}
		if s := cloud.pf.Sight(peer.PublicKey{1}); !s.RequestAt.IsZero() || s.Boots != nil {
			t.Errorf("of a stranger: got %+v", s)
		}
	})
}

func TestSightRemembersTheLastBoots(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		edge.know(cloud, advertised("203.0.113.1:51820"))
		for n := range uint64(10) {
			p.until(5*time.Second, "cloud sees the restart", func() bool {
				b := cloud.pf.Sight(edge.public()).Boots
				return len(b) > 0 && b[len(b)-1] == n+1
			})
			edge.stop()
			time.Sleep(time.Second) // virtual
			edge.start()
		}
		p.until(5*time.Second, "cloud sees the last restart", func() bool {
			return slices.Equal(cloud.pf.Sight(edge.public()).Boots, []uint64{4, 5, 6, 7, 8, 9, 10, 11})
		})
	})
}

// TestTwoLivesOfOneKeyAreSeen has two processes with one key, as after a copied volume: both boot
// ids keep coming back.
func TestTwoLivesOfOneKeyAreSeen(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		edge.know(cloud, advertised("203.0.113.1:51820"))
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		twin := p.add("twin", nil, func(g *gateway) { g.key, g.self, g.boot = edge.key, edge.self, 6 })
		twin.know(cloud, advertised("203.0.113.1:51820"))
		p.until(5*time.Second, "the first is told of the later one", func() bool { return edge.heard() == 7 })
		p.until(3*time.Minute, "both boot ids come again", func() bool {
			b := cloud.pf.Sight(edge.public()).Boots
			return len(b) >= 4 && slices.Equal(b[:4], []uint64{1, 7, 1, 7})
		})
		if cloud.heard() != 0 || twin.heard() != 0 {
			t.Errorf("cloud was told of %d, and the later one of %d", cloud.heard(), twin.heard())
		}
		if b := cloud.pf.Boot(edge.public()); b != 7 {
			t.Errorf("cloud follows %d while both run, want the later one", b)
		}
		twin.stop()
		p.until(4*time.Minute, "cloud follows the first again", func() bool { return cloud.pf.Boot(edge.public()) == 1 })
		edge.later.Store(0)
		p.connected(time.Minute, path.KindDirect, edge, cloud)
		time.Sleep(5 * time.Minute) // virtual
		p.connected(time.Second, path.KindDirect, edge, cloud)
		if edge.heard() != 0 {
			t.Errorf("the first is still told of %d", edge.heard())
		}
		twin.start()
		p.until(time.Minute, "cloud follows the one that starts later", func() bool { return cloud.pf.Boot(edge.public()) == 8 })
	})
}

func TestSightNamesWhatMoved(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		old, next := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.77")
		p.setName("cloud.example.net", old)
		cloud := p.add("cloud", nil)
		b := simnet.PortRestricted()
		edge := p.add("edge", &b)
		cloud.know(edge)
		edge.knowAs(cloud, []string{"cloud.example.net:51820"})
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		time.Sleep(3 * time.Minute) // virtual: it is resolved again, to the same addresses
		if m := edge.pf.Sight(cloud.public()).Moved; m != nil {
			t.Errorf("before it moved: got %+v", m)
		}
		p.setName("cloud.example.net", next)
		began := time.Now()
		p.until(2*time.Minute, "the move is seen", func() bool { return len(edge.pf.Sight(cloud.public()).Moved) == 1 })
		p.setName("cloud.example.net") // a failure is no change
		time.Sleep(3 * time.Minute)    // virtual
		m := edge.pf.Sight(cloud.public()).Moved
		if len(m) != 1 || m[0].Name != "cloud.example.net:51820" || !slices.Equal(m[0].Was, []netip.Addr{old}) ||
			!slices.Equal(m[0].Now, []netip.Addr{next}) || m[0].At.Before(began) {
			t.Errorf("got %+v", m)
		}
	})
}
