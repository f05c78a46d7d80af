package discovery_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestAGatewayBehindNATDialsAPublicOne(t *testing.T) {
	for _, c := range []struct {
		name string
		nat  func() simnet.Behaviour
	}{
		{"no NAT", nil},
		{"full cone", simnet.FullCone},
		{"port-restricted", simnet.PortRestricted},
		{"conntrack", simnet.Conntrack},
		{"poisonable", simnet.Poisonable},
		{"symmetric", simnet.Symmetric},
	} {
		t.Run(c.name, func(t *testing.T) {
			inParty(t, false, func(t *testing.T, p *party) {
				cloud := p.add("cloud", nil)
				edge := p.add("edge", behaviour(c.nat))
				cloud.know(edge) // without candidates
				edge.know(cloud, advertised("203.0.113.1:51820"))
				p.connected(3*time.Second, path.KindDirect, edge, cloud)
				time.Sleep(2 * time.Minute) // virtual
				if s := edge.to(cloud); s.Kind != path.KindDirect || s.Selected != peer.Direct(netip.MustParseAddrPort("203.0.113.1:51820")) || s.RTT != 20*time.Millisecond {
					t.Errorf("two minutes later edge has %+v", s)
				}
				rtt, over, err := edge.pf.Probe(t.Context(), cloud.public())
				if err != nil || rtt != 20*time.Millisecond || over.Remote.Addr().String() != "203.0.113.1" {
					t.Errorf("probe: got %v over %v, %v, want 20ms", rtt, over, err)
				}
				if s := cloud.to(edge); s.Kind != path.KindDirect {
					t.Errorf("two minutes later cloud has %+v", s)
				}
				if c := edge.pf.Counts(); c.Refused != 0 || c.Answers == 0 || c.Requests == 0 {
					t.Errorf("counts: got %+v", c)
				}
			})
		})
	}
}

func behaviour(f func() simnet.Behaviour) *simnet.Behaviour {
	if f == nil {
		return nil
	}
	b := f()
	return &b
}

func TestTwoNATsMeetOverARelayAndPunch(t *testing.T) {
	for _, c := range []struct {
		name string
		nat  func() simnet.Behaviour
		want string
	}{
		{"port-restricted", simnet.PortRestricted, path.KindDirect},
		{"symmetric", simnet.Symmetric, path.KindRelay},
	} {
		t.Run(c.name, func(t *testing.T) {
			inParty(t, true, func(t *testing.T, p *party) {
				a := p.add("a", behaviour(c.nat))
				b := p.add("b", behaviour(c.nat))
				a.know(b) // a made a ticket with its relayed address; b knows nothing else
				b.know(a, a.relayedCandidate())
				p.connected(5*time.Second, path.KindRelay, a, b)
				p.connected(60*time.Second, c.want, a, b)
				time.Sleep(time.Minute) // virtual
				if got := a.to(b); got.Kind != c.want {
					t.Errorf("a minute later: got %s because %s, want %s", got.Kind, got.Reason, c.want)
				}
				if rtt, over, err := a.pf.Probe(t.Context(), b.public()); err != nil || rtt <= 0 {
					t.Errorf("probe: got %v over %v, %v", rtt, over, err)
				}
			})
		})
	}
}

func TestANameThatMovesIsFollowed(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		old, next := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.77")
		p.setName("cloud.example.net", old)
		cloud := p.add("cloud", nil)
		b := simnet.PortRestricted()
		edge := p.add("edge", &b)
		cloud.know(edge)
		edge.knowAs(cloud, []string{"cloud.example.net:51820"})
		p.connected(3*time.Second, path.KindDirect, edge, cloud)

		p.setName("cloud.example.net") // the name cannot be resolved
		time.Sleep(5 * time.Minute)    // virtual
		if s := edge.to(cloud); s.Kind != path.KindDirect {
			t.Errorf("without DNS: got %s because %s, want the last good answer to hold", s.Kind, s.Reason)
		}
		if err := cloud.host.SetAddrs(next); err != nil {
			t.Fatal(err)
		}
		p.until(40*time.Second, "edge notices that cloud is gone", func() bool { return edge.to(cloud).Kind == path.KindNone })
		p.setName("cloud.example.net", next)
		// Names are resolved again when the last path is lost; this answer came later.
		d := p.connected(62*time.Second, path.KindDirect, edge, cloud)
		if got := edge.to(cloud).Selected.Remote.Addr(); got != next {
			t.Errorf("edge sends to %v, want %v", got, next)
		}
		t.Logf("the new address was found %v after the DNS had it", d)
	})
}

func TestTheNamesOfAPeerInDoubtAreResolvedAgain(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		old, next := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.77")
		p.setName("cloud.example.net", old)
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		edge.knowAs(cloud, []string{"cloud.example.net:51820"})
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		time.Sleep(10 * time.Second) // virtual: it was resolved just now
		p.setName("cloud.example.net", next)
		moved := func() bool { return len(edge.pf.Sight(cloud.public()).Moved) > 0 }
		time.Sleep(time.Second)
		if moved() {
			t.Error("the name was resolved without a reason")
		}
		edge.pf.Doubt(cloud.public())
		p.until(time.Second, "edge notices that the name leads elsewhere", moved)
	})
}

// Until a resolution has failed, which takes seconds, its name is no less an endpoint of the peer.
func TestANameWithoutAnAnswerYetIsNamed(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		edge.knowAs(cloud, []string{silentName + ":51820"})
		time.Sleep(2 * time.Second) // virtual; it is given up after 5 s
		got := edge.pf.Unresolved(cloud.public())
		if len(got) != 1 || got[0].Name != silentName+":51820" || !got[0].Silent {
			t.Fatalf("got %+v, want the name, with a silent name server", got)
		}
		if s, want := edge.to(cloud), silentName+":51820 is being resolved"; !strings.HasPrefix(s.Reason, want) {
			t.Errorf("got the reason %q, want %q…", s.Reason, want)
		}
	})
}

func TestANameThatCannotBeResolvedIsNamed(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		edge.knowAs(cloud, []string{"gone.example.net:51820"})
		p.until(5*time.Second, "the name is looked up", func() bool {
			u := edge.pf.Unresolved(cloud.public())
			return len(u) == 1 && !u[0].Next.IsZero()
		})
		u := edge.pf.Unresolved(cloud.public())[0]
		if u.Name != "gone.example.net:51820" || !strings.HasPrefix(u.Reason, "cannot be resolved: ") || u.Next.IsZero() {
			t.Errorf("got %+v", u)
		}
		s := edge.to(cloud)
		if want := u.Name + " " + u.Reason; s.Reason != want || !s.NextTry.Equal(u.Next) {
			t.Errorf("got the reason %q and the next try %v, want %q and %v", s.Reason, s.NextTry, want, u.Next)
		}
		edge.logging.Lock()
		log := edge.log.String()
		edge.logging.Unlock()
		if !strings.Contains(log, "endpoint=gone.example.net:51820") || strings.Contains(log, "last good answer") {
			t.Errorf("the log should name the endpoint and no former answer:\n%s", log)
		}

		p.setName("gone.example.net", netip.MustParseAddr("203.0.113.1"))
		p.connected(62*time.Second, path.KindDirect, edge, cloud)
		p.setName("gone.example.net")
		time.Sleep(2 * time.Minute) // virtual
		if left := edge.pf.Unresolved(cloud.public()); len(left) > 0 {
			t.Errorf("a name whose former answer holds is listed: %+v", left)
		}
		edge.logging.Lock()
		defer edge.logging.Unlock()
		if !strings.Contains(edge.log.String(), "using the last good answer") {
			t.Error("the log does not say that the last good answer holds")
		}
	})
}

func TestALostPeerIsLookedUpAgainAtOnce(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		next := netip.MustParseAddr("203.0.113.77")
		p.setName("cloud.example.net", netip.MustParseAddr("203.0.113.1"))
		cloud := p.add("cloud", nil)
		b := simnet.PortRestricted()
		edge := p.add("edge", &b)
		cloud.know(edge)
		edge.knowAs(cloud, []string{"cloud.example.net:51820"})
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		time.Sleep(61 * time.Second) // virtual: a resolution was just made
		if err := cloud.host.SetAddrs(next); err != nil {
			t.Fatal(err)
		}
		p.setName("cloud.example.net", next)
		p.until(40*time.Second, "edge sends to cloud's new address", func() bool {
			s := edge.to(cloud)
			return s.Kind == path.KindDirect && s.Selected.Remote.Addr() == next
		})
	})
}

func TestANewOwnAddressIsRepaired(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		b := simnet.PortRestricted()
		cloud, edge := p.add("cloud", nil), p.add("edge", &b)
		cloud.know(edge)
		edge.know(cloud, advertised("203.0.113.1:51820"))
		edge.setBusy()
		cloud.setBusy()
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		time.Sleep(30 * time.Second) // virtual
		if err := edge.nat.SetAddrs(netip.MustParseAddr("198.51.100.99")); err != nil {
			t.Fatal(err)
		}
		if err := edge.host.SetAddrs(netip.MustParseAddr("192.168.2.6")); err != nil {
			t.Fatal(err)
		}
		d := p.until(10*time.Second, "cloud sends to edge's new address", func() bool {
			s := cloud.to(edge)
			return s.Kind == path.KindDirect && s.Selected.Remote.Addr().String() == "198.51.100.99"
		})
		t.Logf("repaired after %v", d)
		p.connected(time.Second, path.KindDirect, edge, cloud)
	})
}

func TestARestartedPeerIsGreetedByAHandshake(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		edge.know(cloud, advertised("203.0.113.1:51820"))
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		time.Sleep(time.Minute) // virtual
		cloud.mu.Lock()
		before := cloud.handshakes[edge.public()]
		cloud.mu.Unlock()
		edge.stop()
		edge.start()
		d := p.until(3*time.Second, "cloud asks for a handshake", func() bool {
			cloud.mu.Lock()
			defer cloud.mu.Unlock()
			return cloud.handshakes[edge.public()] > before
		})
		t.Logf("asked for after %v", d)
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
	})
}

func TestADeadDirectPathGivesWayToTheRelay(t *testing.T) {
	inParty(t, true, func(t *testing.T, p *party) {
		b := simnet.PortRestricted()
		a, c := p.add("a", &b), p.add("c", &b)
		a.know(c)
		c.know(a, a.relayedCandidate())
		a.setBusy()
		c.setBusy()
		p.connected(60*time.Second, path.KindDirect, a, c)
		time.Sleep(time.Minute) // virtual
		other := c.nat.Addrs()[0]
		a.nat.Link().SetFirewall(simnet.Firewall{Drop: func(d simnet.Datagram, _ bool) bool {
			return d.Src.Addr() == other || d.Dst.Addr() == other
		}})
		down := p.connected(10*time.Second, path.KindRelay, a, c)
		if _, over, err := a.pf.Probe(t.Context(), c.public()); err != nil || over.Via == "" && over.Remote.Addr().String() != relayAddr {
			t.Errorf("probe over the relay: %v over %v", err, over)
		}
		time.Sleep(5 * time.Minute) // virtual
		a.nat.Link().SetFirewall(simnet.Firewall{})
		up := p.connected(6*time.Minute, path.KindDirect, a, c)
		t.Logf("relayed after %v, direct again after %v", down, up)
	})
}

func TestARemovedPeerGetsNoAnswer(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		edge.know(cloud, advertised("203.0.113.1:51820"))
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		cloud.mu.Lock()
		cloud.peers = nil
		cloud.mu.Unlock()
		if err := cloud.pf.SetPeers(nil); err != nil {
			t.Fatal(err)
		}
		if _, known := cloud.pf.Snapshot(edge.public()); known {
			t.Error("the peer is still known")
		}
		if _, _, err := cloud.pf.Probe(t.Context(), edge.public()); !errors.Is(err, discovery.ErrUnknownPeer) {
			t.Errorf("probe of a removed peer: got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, over, err := edge.pf.Probe(ctx, cloud.public()); !errors.Is(err, discovery.ErrNoAnswer) || !over.IsValid() || err.Error() != "no answer in 1 s" {
			t.Errorf("probe by a removed peer: got %v over %v, want no answer", err, over)
		}
		p.until(35*time.Second, "edge loses the path", func() bool { return edge.to(cloud).Kind == path.KindNone })
		if _, _, err := edge.pf.Probe(t.Context(), cloud.public()); !errors.Is(err, discovery.ErrNoPath) {
			t.Errorf("probe without a path: got %v", err)
		}
		edge.logging.Lock()
		defer edge.logging.Unlock()
		for _, want := range []string{`msg="peer is reachable" peer=cloud`, `level=WARN msg="peer is no longer reachable" peer=cloud`} {
			if !strings.Contains(edge.log.String(), want) {
				t.Errorf("the log lacks %s", want)
			}
		}
	})
}

func TestManyPeersOfOneGateway(t *testing.T) {
	inParty(t, true, func(t *testing.T, p *party) {
		hub := p.add("hub", nil)
		b := simnet.PortRestricted()
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			g := p.add(name, &b)
			hub.know(g, g.relayedCandidate())
			g.know(hub, advertised("203.0.113.1:51820"))
		}
		for _, g := range p.all[1:] {
			p.connected(5*time.Second, path.KindDirect, hub, g)
		}
		p.until(5*time.Second, "the hub's relay lets in all NATs of its peers", func() bool {
			hub.alloc.mu.Lock()
			defer hub.alloc.mu.Unlock()
			for _, g := range p.all[1:] {
				if !slices.Contains(hub.alloc.permitted, g.nat.Addrs()[0]) {
					return false
				}
			}
			return true
		})
	})
}

// Idle peers are probed together, at most twice a second, so that a gateway with many wakes
// rarely; and the paths hold.
func TestIdlePeersAreProbedTogether(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		hub := p.add("hub", nil)
		for i := range 12 {
			g := p.add("peer-"+string(rune('a'+i)), nil)
			hub.know(g, advertised(g.host.Addrs()[0].String()+":51820"))
			g.know(hub, advertised("203.0.113.1:51820"))
			p.connected(5*time.Second, path.KindDirect, hub, g)
		}
		time.Sleep(2 * time.Minute) // virtual
		began, requests, offsets := time.Now(), 0, map[time.Duration]bool{}
		var mu sync.Mutex
		defer hub.host.Link().Tap(func(d simnet.Datagram, way simnet.Direction) {
			if way == simnet.Up && bytes.HasPrefix(d.Payload, []byte{0, 1}) && len(d.Payload) > 20 { // RFC 8489 §5
				mu.Lock()
				defer mu.Unlock()
				requests++
				offsets[time.Since(began)%path.Beat] = true
			}
		})()
		time.Sleep(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if requests < 12*5 || requests > 12*20 || len(offsets) != 1 {
			t.Errorf("%d probes in 5 min, %d offsets from the beat, want some 90 and one", requests, len(offsets))
		}
		for _, g := range p.all[1:] {
			if s := hub.to(g); s.Kind != path.KindDirect || time.Since(s.Proven) > time.Minute {
				t.Errorf("%s is %s, proven %v ago", g.name, s.Kind, time.Since(s.Proven))
			}
		}
	})
}

// A packet from an idle peer on another path than the one in use does not wait for the next beat.
func TestAnotherWayOfAnIdlePeerIsTriedAtOnce(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		b := simnet.PortRestricted()
		cloud, edge := p.add("cloud", nil), p.add("edge", &b)
		cloud.know(edge)
		edge.know(cloud, advertised("203.0.113.1:51820"))
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		for i := range byte(5) {
			time.Sleep(3*time.Minute + time.Duration(i)*path.Beat/5) // virtual; so that one is far from a beat
			next := netip.AddrFrom4([4]byte{198, 51, 100, 90 + i})
			var mu sync.Mutex
			var came, went time.Time
			untap := cloud.host.Link().Tap(func(d simnet.Datagram, way simnet.Direction) {
				mu.Lock()
				defer mu.Unlock()
				switch request := bytes.HasPrefix(d.Payload, []byte{0, 1}); {
				case !request:
				case way == simnet.Down && d.Src.Addr() == next && came.IsZero():
					came = time.Now()
				case way == simnet.Up && d.Dst.Addr() == next && went.IsZero():
					went = time.Now()
				}
			})
			if err := edge.nat.SetAddrs(next); err != nil {
				t.Fatal(err)
			}
			if err := edge.host.SetAddrs(netip.AddrFrom4([4]byte{192, 168, 2, 6 + i})); err != nil {
				t.Fatal(err)
			}
			p.until(time.Minute, "cloud probes edge's new address", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return !went.IsZero()
			})
			untap()
			if took := went.Sub(came); came.IsZero() || took < 0 || took > 60*time.Millisecond { // the link's delay, and the pace
				t.Errorf("%v: probed %v after it was heard there", next, took)
			}
		}
	})
}

func TestNewPathfinderRefuses(t *testing.T) {
	key, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	ok := discovery.PathfinderOptions{
		PrivateKey: key, BootID: 1,
		Send:  func([]byte, peer.Path, int, bool) error { return nil },
		Route: func(peer.PublicKey, path.Routing) {},
	}
	for name, change := range map[string]func(*discovery.PathfinderOptions){
		"no Send":  func(o *discovery.PathfinderOptions) { o.Send = nil },
		"no Route": func(o *discovery.PathfinderOptions) { o.Route = nil },
		"no key":   func(o *discovery.PathfinderOptions) { o.PrivateKey = peer.PrivateKey{} },
	} {
		o := ok
		change(&o)
		if _, err := discovery.NewPathfinder(o); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	f, err := discovery.NewPathfinder(ok)
	if err != nil {
		t.Fatal(err)
	}
	other, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	err = f.SetPeers([]discovery.PathPeer{{Key: other.Public(), Name: "cloud", Names: []string{"nonsense", "cloud.example.net:1"}}})
	if err == nil || !strings.Contains(err.Error(), "cloud") || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("a name that cannot be read: got %v, want peer and text in it", err)
	}
	if _, known := f.Snapshot(other.Public()); !known {
		t.Error("the peer with one bad name is not there")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopped by the test")
	cancel(why)
	if err := f.Run(ctx); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	if err := f.Run(ctx); !errors.Is(err, discovery.ErrRunning) {
		t.Errorf("the second time: got %v, want ErrRunning", err)
	}
}

// The names of allocations mean nothing to people, so logs name the relay's server.
func TestLogsNameARelayByItsServer(t *testing.T) {
	inParty(t, true, func(t *testing.T, p *party) {
		b := simnet.Symmetric()
		a, c := p.add("a", &b), p.add("c", &b)
		a.know(c)
		c.know(a, a.relayedCandidate())
		p.connected(5*time.Second, path.KindRelay, a, c)
		a.setBusy()
		c.stop()
		p.until(time.Minute, "a says that c is gone", func() bool { return strings.Contains(a.logged(), "peer is no longer reachable") })
		c.start()
		log := a.logged()
		for _, want := range []string{`msg="peer is reachable"`, " via " + relayAddr} {
			if !strings.Contains(log, want) {
				t.Errorf("the log has no %q", want)
			}
		}
		for line := range strings.Lines(log) {
			if !strings.Contains(line, "level=DEBUG") && strings.Contains(line, a.via()) {
				t.Errorf("the log names an allocation: %s", line)
			}
		}
	})
}
