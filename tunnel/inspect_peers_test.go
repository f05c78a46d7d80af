package tunnel

import (
	"net/netip"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/peer"
)

// sightings returns those of another node, at its own address.
func (n *node) sightings(of *node) Sightings { return n.Sightings(of.PublicKey(), nil) }

// expectNothing fails if anything was sighted. An initiation may have waited for its path until
// the next one was due, so a Skew up to that is ignored.
func (n *node) expectNothing(of *node) {
	n.t.Helper()
	got := n.sightings(of)
	if got.Skew.Abs() <= device.RekeyTimeout {
		got.Skew = 0
	}
	if !reflect.DeepEqual(got, Sightings{}) {
		n.t.Errorf("got %+v, want nothing", got)
	}
}

func presharedKey(t *testing.T) peer.PresharedKey {
	t.Helper()
	k, err := peer.NewPresharedKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestResponsesUnderAnotherPresharedKeyAreSighted(t *testing.T) {
	for name, managed := range map[string]bool{"managed": true, "not managed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, cloud, edge := pair(t)
				forCloud, forEdge := cloud.as("cloud", cloud.addr), edge.as("edge")
				forCloud.Managed, forEdge.Managed = managed, managed
				right := presharedKey(t)
				forEdge.PresharedKey, forCloud.PresharedKey = right, presharedKey(t)
				cloud.set(forEdge)
				begin := time.Now()
				edge.set(forCloud)
				waitFor(t, "the sight of a response", func() bool { return !edge.sightings(cloud).Unverified.At.IsZero() })
				time.Sleep(time.Minute)
				got := edge.sightings(cloud)
				if got.Unverified.From != cloud.addr || got.Unverified.At.Before(begin) {
					t.Errorf("at the initiator: got %+v, want a response from %v", got, cloud.addr)
				}
				got.Unverified, got.Initiated = Sight{}, Sight{}
				if !reflect.DeepEqual(got, Sightings{}) {
					t.Errorf("at the initiator: got %+v besides, want nothing", got)
				}
				got = cloud.sightings(edge)
				if got.Initiated.From != edge.addr || got.Initiated.At.Before(begin) {
					t.Errorf("at the responder: got %+v, want an initiation from %v", got, edge.addr)
				}
				// An unmanaged cloud has learned from the initiations where to dial, and does so
				// when it has data.
				if managed && !got.Unverified.At.IsZero() {
					t.Errorf("at the responder: got %+v, want no response", got.Unverified)
				}
				if !managed {
					waitFor(t, "the sight of a response at the responder", func() bool { return !cloud.sightings(edge).Unverified.At.IsZero() })
				}

				forCloud.PresharedKey = right
				edge.set(forCloud)
				connect(cloud, edge)
				edge.expectNothing(cloud)
				cloud.expectNothing(edge)
			})
		})
	}
}

func TestInitiationsForAndByOtherKeysAreSighted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		wrong := newKey(t).Public()
		cloud.set(edge.managed("edge", edge.addr))
		edge.set(peer.Config{Name: "cloud", PublicKey: wrong, Managed: true, Endpoints: []netip.AddrPort{cloud.addr}})
		time.Sleep(10 * time.Second)

		atCloud := cloud.sightings(edge)
		if atCloud.NotForUs.From != edge.addr || atCloud.NotForUs.At.IsZero() {
			t.Errorf("at cloud: got %+v, want an initiation for another key from %v", atCloud, edge.addr)
		}
		if !atCloud.OtherKey.At.IsZero() || !atCloud.Unverified.At.IsZero() || !atCloud.StampInPast.At.IsZero() {
			t.Errorf("at cloud: got %+v, want nothing else", atCloud)
		}
		atEdge := edge.Sightings(wrong, []netip.Addr{cloud.addr.Addr()})
		if atEdge.OtherKey.From != cloud.addr || atEdge.OtherKey.Key != cloud.PublicKey() {
			t.Errorf("at edge: got %+v, want an initiation by %s from %v", atEdge, cloud.PublicKey(), cloud.addr)
		}
		if !atEdge.NotForUs.At.IsZero() || !atEdge.Unverified.At.IsZero() {
			t.Errorf("at edge: got %+v, want nothing else", atEdge)
		}
	})
}

// An endpoint that leads back here is no peer with a wrong key for this gateway.
func TestOurOwnInitiationsAreRecognised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		edge.set(peer.Config{Name: "cloud", PublicKey: cloud.PublicKey(), Managed: true, Endpoints: []netip.AddrPort{edge.addr}})
		time.Sleep(10 * time.Second)
		got := edge.Sightings(cloud.PublicKey(), []netip.Addr{edge.addr.Addr()})
		if got.CameBack.From != edge.addr || got.CameBack.At.IsZero() || !got.NotForUs.At.IsZero() {
			t.Errorf("got %+v, want an initiation of our own from %v and none for another key", got, edge.addr)
		}
	})
}

// A peer whose clock was set back is locked out until its clock catches up, unless the gateway
// that it dials was restarted.
func TestTimestampsOfThePastAreSighted(t *testing.T) {
	for name, test := range map[string]struct{ from netip.AddrPort }{
		"from its address":   {netip.MustParseAddrPort(edgeAddr)},
		"from a new address": {tapAddr},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, cloud, edge := pair(t)
				cloud.set(edge.managed("edge"))
				edge.set(cloud.managed("cloud", cloud.addr))
				connect(cloud, edge)
				handshake := time.Now()
				edge.stop()
				time.Sleep(time.Minute)
				restarted := listenTap(t, n, test.from)
				stamp := handshake.Add(-time.Hour).Truncate(time.Second)
				before := time.Now()
				restarted.write(makeInitiation(t, edge.key, newKey(t), cloud.PublicKey(), stamp), cloud.addr)
				waitFor(t, "the sight of it", func() bool { return !cloud.sightings(edge).StampInPast.At.IsZero() })
				got := cloud.sightings(edge).StampInPast
				if got.From != test.from || !got.Stamp.Equal(stamp) || got.At.Before(before) {
					t.Errorf("got %+v, want the stamp %v from %v", got, stamp, test.from)
				}
				if skew := cloud.sightings(edge).Skew; skew != 0 {
					t.Errorf("got a clock that is %v ahead, want that of before", skew)
				}
				if ago := handshake.Sub(got.Newest); ago < 0 || ago > time.Second {
					t.Errorf("got the newest stamp %v, want that of the handshake at %v", got.Newest, handshake)
				}
			})
		})
	}
}

// Someone who forges the peer's address, and knows our key, cannot make all initiations from
// there seem to come from another key.
func TestForgedInitiationsHideNoGenuineOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		cloud.set(edge.managed("edge")) // which dials
		edge.set(cloud.managed("cloud", cloud.addr))
		connect(cloud, edge)
		handshake := time.Now()
		edge.stop()
		time.Sleep(time.Minute)
		at := listenTap(t, n, edge.addr)
		forge := func() {
			for range 3 {
				at.write(makeInitiation(t, newKey(t), newKey(t), cloud.PublicKey(), time.Now()), cloud.addr)
				at.write(makeInitiation(t, edge.key, newKey(t), newKey(t).Public(), time.Now()), cloud.addr)
			}
			waitFor(t, "the sight of the forged ones", func() bool { return !cloud.sightings(edge).OtherKey.At.IsZero() })
		}
		at.write(makeInitiation(t, edge.key, newKey(t), cloud.PublicKey(), handshake.Add(-time.Hour)), cloud.addr)
		waitFor(t, "the sight of the stamp", func() bool { return !cloud.sightings(edge).StampInPast.At.IsZero() })
		genuine := cloud.sightings(edge).StampInPast
		forge()
		if got := cloud.sightings(edge).StampInPast; got != genuine {
			t.Errorf("got the stamp %+v, want %+v as before", got, genuine)
		}
		time.Sleep(unverifiedLifetime)
		if got := cloud.sightings(edge).StampInPast; !got.At.IsZero() {
			t.Errorf("two minutes later: got %+v, want nothing any more", got)
		}

		at.write(makeInitiation(t, edge.key, newKey(t), cloud.PublicKey(), time.Now()), cloud.addr)
		at.read() // the response; no data follows it
		initiated := cloud.sightings(edge).Initiated
		if initiated.From != edge.addr {
			t.Fatalf("got %+v, want an initiation from %v", initiated, edge.addr)
		}
		time.Sleep(time.Second)
		forge()
		if got := cloud.sightings(edge).Initiated; got != initiated {
			t.Errorf("got the initiation %+v, want %+v as before", got, initiated)
		}
	})
}

func TestClockOfThePeerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, _ := pair(t)
		ahead, from := listenTap(t, n, tapAddr), newKey(t)
		cloud.set(peer.Config{Name: "ahead", PublicKey: from.Public()})
		ahead.write(makeInitiation(t, from, newKey(t), cloud.PublicKey(), time.Now().Add(time.Hour)), cloud.addr)
		ahead.read() // the response
		got := cloud.Sightings(from.Public(), nil)
		if got.Skew != time.Hour || got.Initiated.From != tapAddr {
			t.Errorf("got %+v, want an initiation from %v by a clock an hour ahead", got, tapAddr)
		}
	})
}

func TestHealthyPeersAreNotSighted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		forward(t, n, via, cloud.addr) // copies of each handshake arrive on this path
		cloud.set(edge.managed("edge", edge.addr))
		edge.set(cloud.managed("cloud", cloud.addr, via))
		connect(cloud, edge)
		for range 200 {
			cloud.expectNothing(edge)
			edge.expectNothing(cloud)
			reach(cloud, edge) // the session is renewed every two minutes
			reach(edge, cloud)
			time.Sleep(3 * time.Second)
		}
		if err := edge.Redial(cloud.PublicKey()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		cloud.expectNothing(edge)
		edge.expectNothing(cloud)
	})
}

// Peers behind one address are not reported as each other's OtherKey.
func TestOtherPeersAtTheAddressAreNoOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		neighbour := startNode(t, n, newKey(t), netip.AddrPortFrom(edge.addr.Addr(), 7).String())
		cloud.set(edge.managed("edge", edge.addr), neighbour.managed("neighbour"))
		neighbour.set(cloud.managed("cloud", cloud.addr))
		connect(cloud, neighbour)
		time.Sleep(time.Second)
		cloud.expectNothing(edge)
	})
}

func TestUnknownPeersHaveNoSightings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.expectNothing(edge)
	})
}

// A key of no peer that dials from where no peer is known is seen, and ceases to be seen as such once
// it is a peer's.
func TestStrangersAreSighted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		edge.set(cloud.managed("cloud", cloud.addr))
		time.Sleep(10 * time.Second)
		got := cloud.Strangers()
		if len(got) != 1 || got[0].Key != edge.PublicKey() || got[0].From != edge.addr || time.Since(got[0].At) > 10*time.Second {
			t.Errorf("got %+v, want the key of edge from %v", got, edge.addr)
		}
		cloud.set(edge.managed("edge"))
		if got := cloud.Strangers(); len(got) != 0 {
			t.Errorf("got %+v of a peer", got)
		}
	})
}
