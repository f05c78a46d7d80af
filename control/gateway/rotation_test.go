package gateway_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

// keyOf is what a gateway shows as its public key.
func (w *world) keyOf(s *lab.Site) string {
	w.t.Helper()
	st, err := s.Gateway.Status(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return st.Gateway.PublicKey
}

// rotate gives a gateway another key and restarts it.
func (w *world) rotate(s *lab.Site, r api.KeyRotateRequest) api.KeyRotateResponse {
	w.t.Helper()
	r.Wait = cmp.Or(r.Wait, api.Duration(patience.Left())) // a busy machine may need longer than the default
	out, err := s.Gateway.KeyRotate(w.ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	if !out.Rotated {
		return out
	}
	select {
	case <-s.Gateway.Restart():
	default:
		w.t.Error("the gateway has another key and does not want to be restarted")
	}
	w.stop(s)
	w.start(s)
	return out
}

// Both sides of a NAT rotate in turn, and then the first again: nobody joins again, and
// everything works under the new keys alone.
func TestARotationLosesNoPeer(t *testing.T) {
	w := newWorld(t)
	w.peer()
	for _, s := range []*lab.Site{w.Cloud, w.Edge, w.Cloud} {
		other, name := w.Edge, "cloud"
		if s == w.Edge {
			other, name = w.Cloud, "edge"
		}
		old := w.keyOf(s)
		before := w.awaitPeer(other, name, func(p api.PeerStatus) string {
			if len(p.Local) == 0 {
				return "there is no listener"
			}
			return ""
		})
		out := w.rotate(s, api.KeyRotateRequest{})
		if !out.Rotated || len(out.Told) != 1 || len(out.Untold) > 0 || out.PublicKey == old {
			t.Fatalf("%s: %+v", s.Name, out)
		}
		if got := w.keyOf(s); got != out.PublicKey {
			t.Errorf("%s has the key %s after the rotation to %s", s.Name, got, out.PublicKey)
		}
		after := w.awaitPeer(other, name, func(p api.PeerStatus) string {
			if len(p.Local) != len(before.Local) {
				return fmt.Sprintf("the listeners are %+v", p.Local)
			}
			if p.PublicKey != out.PublicKey || p.State != api.StateConnected || p.Identity == nil {
				return p.PublicKey + " " + string(p.State)
			}
			return ""
		})
		w.connected(w.Cloud, w.Edge)
		if !slices.Equal(after.Allow, before.Allow) || after.Local[0].Address != before.Local[0].Address {
			t.Errorf("the rotation changed what %s may do and where it is listened for: %+v, before %+v", name, after, before)
		}
	}
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
	w.apiServerVerdict(w.Cloud, "edge", api.OK)
	w.await("each announcement, switch and first use is recorded once", func() string {
		if n := strings.Count(w.log.String(), `"event":"rotate"`); n != 3*3 {
			return fmt.Sprintf("%d are", n)
		}
		return ""
	})
}

// A peer that does not answer is not lost by a rotation: there is none until it does.
func TestARotationWaitsForAPeerThatIsAway(t *testing.T) {
	w := newWorld(t)
	w.peer()
	old := w.keyOf(w.Cloud)
	w.stop(w.Edge)
	out := w.rotate(w.Cloud, api.KeyRotateRequest{Wait: 1e9})
	if out.Rotated || len(out.Untold) != 1 || out.Untold[0].Peer != "edge" || !strings.Contains(out.Untold[0].Reason, "does not answer") {
		t.Fatalf("with edge away: %+v", out)
	}
	if w.keyOf(w.Cloud) != old {
		t.Error("the key has changed")
	}
	w.start(w.Edge)
	w.connected(w.Cloud, w.Edge)
	again := w.rotate(w.Cloud, api.KeyRotateRequest{})
	if !again.Rotated || again.PublicKey != out.PublicKey {
		t.Errorf("when it is back: %+v, and the key announced before was %s", again, out.PublicKey)
	}
	w.connected(w.Cloud, w.Edge)
}

// What a file says only its owner changes: such a peer is named with what to do.
func TestARotationNamesThePeersThatConfigureTheKey(t *testing.T) {
	w := newWorld(t)
	third := w.addSite("third", "203.0.113.30")
	w.mustEdit(third, func(g *api.GatewaySpec) {
		g.Peers = []api.Peer{{Name: "cloud", PublicKey: w.keyOf(w.Cloud), Endpoints: []string{"203.0.113.10:51820"}}}
	})
	key := w.keyOf(third)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "third", PublicKey: key}}); err != nil {
		t.Fatal(err)
	}
	w.connected(w.Cloud, third)
	out := w.rotate(w.Cloud, api.KeyRotateRequest{})
	if out.Rotated || len(out.Untold) != 1 || !strings.Contains(out.Untold[0].Reason, "enter "+out.PublicKey+" there") {
		t.Errorf("got %+v", out)
	}
	if out = w.rotate(w.Cloud, api.KeyRotateRequest{Force: true}); !out.Rotated {
		t.Fatalf("forced: %+v", out)
	}
	w.mustEdit(third, func(g *api.GatewaySpec) { g.Peers[0].PublicKey = out.PublicKey })
	w.connected(w.Cloud, third)
}

// Somebody else's key is public, and no peer can make it its own.
func TestNobodyAnnouncesAnothersKey(t *testing.T) {
	w := newWorld(t)
	key, victim := newKey(t), newKey(t).Public()
	add := func(name string, k peer.PublicKey) error {
		return w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: name, PublicKey: k.String()}})
	}
	if err := add("thief", key.Public()); err != nil {
		t.Fatal(err)
	}
	thief := newStranger(t, w.host("thief", "203.0.113.99"), key, peer.Config{
		Name: "cloud", PublicKey: siteKey(w.Cloud), Endpoints: []netip.AddrPort{endpoint(w.Cloud)},
	})
	announce := func(next peer.PrivateKey, a auth.Announcement) error {
		var err error
		if a.Proof, err = auth.RotationProof(next, siteKey(w.Cloud), key.Public(), a.Next, a.PSK); err != nil {
			t.Fatal(err)
		}
		return thief.client(w.Cloud).Rotate(w.ctx, a)
	}
	err := announce(key, auth.Announcement{Next: victim})
	if !errors.Is(err, auth.ErrRequest) || !strings.Contains(err.Error(), "nothing proves") {
		t.Errorf("another's key is announced: %v", err)
	}
	own := newKey(t)
	if err := announce(own, auth.Announcement{Next: own.Public()}); err != nil {
		t.Errorf("a key of its own: %v", err)
	}
	if err := add("victim", victim); err != nil {
		t.Errorf("a key that was announced in vain: %v", err)
	}
	w.refused("a key that was announced", add("second", own.Public()), false, "announced as its next one", "peer remove thief")
}
