package gateway_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tunnel/peer"
)

// heldKey is a key that is somebody's, and how a refusal calls it.
type heldKey struct {
	key  peer.PrivateKey
	what string
}

// ownKey is a private key in the state directory of a site.
func (w *world) ownKey(s *lab.Site, file string) peer.PrivateKey {
	w.t.Helper()
	k, err := state.LoadPrivateKey(filepath.Join(s.Spec().StateDir, file))
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// holdKeys makes keys held at cloud in all ways but as a peer's present one.
func (w *world) holdKeys() map[string]heldKey {
	w.t.Helper()
	retired := w.ownKey(w.Cloud, "private.key")
	if out := w.rotate(w.Cloud, api.KeyRotateRequest{}); !out.Rotated {
		w.t.Fatalf("the rotation of cloud: %+v", out)
	}
	before, present, next := newKey(w.t), newKey(w.t), newKey(w.t)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "here", PublicKey: before.Public().String()}}); err != nil {
		w.t.Fatal(err)
	}
	announce := func(from *stranger, present, next peer.PrivateKey) {
		w.t.Helper()
		proof, err := auth.RotationProof(next, siteKey(w.Cloud), present.Public(), next.Public(), peer.PresharedKey{})
		if err != nil {
			w.t.Fatal(err)
		}
		if err := from.client(w.Cloud).Rotate(w.ctx, auth.Announcement{Next: next.Public(), Proof: proof}); err != nil {
			w.t.Fatal(err)
		}
	}
	announce(w.dials("before", "203.0.113.90", before), before, present)
	// The first packet under the next key makes it the peer's.
	successor := w.dials("present", "203.0.113.91", present)
	w.awaitPeer(w.Cloud, "here", func(p api.PeerStatus) string {
		successor.pinged(w.ctx, w.Cloud, time.Second)
		if p.PublicKey != present.Public().String() {
			return "it has the key before"
		}
		return ""
	})
	announce(successor, present, next)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	// A peer that is away holds the rotation up, so there is a next key.
	w.rotate(w.Cloud, api.KeyRotateRequest{Wait: 1})
	return map[string]heldKey{
		"the gateway's next key":   {w.ownKey(w.Cloud, "private.key.next"), "this gateway's own next key"},
		"the gateway's former key": {retired, "a former key of this gateway"},
		"a ticket's":               {ticketKeys(w.t, text).OneTime, "the one-time key of a ticket"},
		"a peer's next key":        {next, "the key that peer here announced as its next one"},
		"a peer's former key":      {before, "a former key of peer here"},
	}
}

// A key that is held becomes nobody's by a file, a command or a ticket.
func TestAKeyThatIsHeldBecomesNobodysPeer(t *testing.T) {
	w := newWorld(t)
	held := w.holdKeys()
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	asks := redeemer(w, w.host("asks", "203.0.113.60"), text).client(w.Cloud)
	for name, h := range held {
		p := api.Peer{Name: "mole", PublicKey: h.key.Public().String()}
		w.refused(name+" by peer add", w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: p}), false, h.what)
		err := w.edit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = []api.Peer{p} })
		if err == nil || !strings.Contains(err.Error(), "which is "+h.what) {
			t.Errorf("%s by the file: %v", name, err)
		}
		if _, err := asks.Redeem(w.ctx, w.request(text, h.key, "mole")); !errors.Is(err, ticket.ErrKeyTaken) {
			t.Errorf("%s by a ticket: got %v, want %v", name, err, ticket.ErrKeyTaken)
		}
		w.audited(w.Cloud, "refuse", map[string]string{"publicKey": h.key.Public().String(), "reason": "the joiner's key is " + h.what})
	}
}

func TestAKeyThatIsHeldBecomesNobodysByAnObject(t *testing.T) {
	w := newWorld(t, inCluster)
	for name, h := range w.holdKeys() {
		err := w.Cloud.Gateway.SetPeers(w.ctx, []config.Peer{{Name: "mole", PublicKey: h.key.Public()}})
		if err == nil || !strings.Contains(err.Error(), "which is "+h.what) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A state directory may say that a ticket's one-time key is a peer's. It stays the peer's, and
// the gateway starts with it.
func TestAPeerWithATicketsKeyStaysOne(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	key := ticketKeys(t, text).OneTime
	w.stop(w.Cloud)
	w.spoil(w.Cloud, func(all *state.Peers) error {
		return all.Put(state.Peer{Name: "mole", PublicKey: key.Public()})
	})
	w.start(w.Cloud)
	if _, there := w.status(w.Cloud, "mole"); !there {
		t.Error("the peer is gone")
	}
	s := w.dials("mole", "203.0.113.66", key)
	w.reaches(s, w.Cloud)
}
