package gateway_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/netip"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tunnel/peer"
)

// enrol redeems a ticket of cloud for a new key, by a name, and comes up with the key.
func enrol(w *world, r api.InviteRequest, host, addr, name string) *stranger {
	w.t.Helper()
	key := newKey(w.t)
	at := w.host(host, addr)
	text := w.invite(w.Cloud, r)
	got, err := redeemer(w, at, text).client(w.Cloud).Redeem(w.ctx, w.request(text, key, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return newStranger(w.t, at, key,
		peer.Config{Name: "cloud", PublicKey: siteKey(w.Cloud), PresharedKey: got.PresharedKey, Endpoints: []netip.AddrPort{endpoint(w.Cloud)}})
}

// user is whom cloud issues a certificate for.
func (s *stranger) user(w *world) string {
	w.t.Helper()
	var user string
	w.await("cloud issues a certificate", func() string {
		cert, err := s.client(w.Cloud).Identity(w.ctx, signingRequest(w.t, pkix.Name{}))
		if err != nil {
			return err.Error()
		}
		block, _ := pem.Decode(cert)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			w.t.Fatal(err)
		}
		user = c.Subject.CommonName
		return ""
	})
	return user
}

// A binding made before, or left behind, is for a user that nobody can become by calling
// himself so.
func TestAJoinerThatNamesItselfInheritsNoBinding(t *testing.T) {
	w := newWorld(t)
	m := enrol(w, api.InviteRequest{Allow: both}, "mallory", "203.0.113.66", "prod")
	got := m.user(w)
	if want := "postern:peer:" + auth.SelfNamed("prod", m.key.Public()); got != want {
		t.Errorf("who calls itself prod is %s, want %s", got, want)
	}
	if print := strings.ReplaceAll(peer.Fingerprint(m.key.Public()), "-", ""); !strings.Contains(got, "prod-"+print) {
		t.Errorf("%s does not show the fingerprint %s", got, print)
	}
	if p, ok := w.status(w.Cloud, "prod"); !ok || p.User != got {
		t.Errorf("status shows the user %q, want %q", p.User, got)
	}
}

func TestANameThatTheInviterGaveIsTheUsers(t *testing.T) {
	w := newWorld(t)
	m := enrol(w, api.InviteRequest{Name: "prod", Allow: both}, "mallory", "203.0.113.66", "whatever")
	if got := m.user(w); got != "postern:peer:prod" {
		t.Errorf("who was named prod is %s", got)
	}
}

// What was issued to a removed peer lives on; so nobody else gets its name before it ends,
// across a restart too, by whichever way he comes.
func TestANameStaysWithItsKeyAcrossRemoval(t *testing.T) {
	w := newWorld(t)
	old := enrol(w, api.InviteRequest{Name: "prod", Allow: both}, "old", "203.0.113.66", "prod")
	old.user(w)
	if err := w.Cloud.Gateway.PeerRemove(w.ctx, "prod", true); err != nil {
		t.Fatal(err)
	}
	w.stop(w.Cloud)
	w.start(w.Cloud)

	next := newKey(t)
	text := w.invite(w.Cloud, api.InviteRequest{Name: "prod", Allow: both})
	_, err := redeemer(w, w.host("next", "203.0.113.67"), text).client(w.Cloud).Redeem(w.ctx, w.request(text, next, "prod"))
	const year = "20" // which one depends on the day
	if err == nil || !strings.Contains(err.Error(), "until "+year) || !strings.Contains(err.Error(), "choose another name") {
		t.Errorf("redeem: %v, want a refusal that says until when", err)
	}
	added := api.PeerAddRequest{Peer: api.Peer{Name: "prod", PublicKey: next.Public().String(), Allow: both}}
	w.refused("peer add", w.Cloud.Gateway.PeerAdd(w.ctx, added), false, "until "+year, "choose another name")
	err = w.edit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = append(g.Peers, added.Peer) })
	if err == nil || !strings.Contains(err.Error(), "until "+year) {
		t.Errorf("the configuration file: %v, want a refusal", err)
	}
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = g.Peers[:len(g.Peers)-1] })
	if _, ok := w.status(w.Cloud, "prod"); ok {
		t.Error("there is a peer prod")
	}

	// A file that was changed while the gateway was down keeps it from nothing but issuing.
	w.stop(w.Cloud)
	if err := w.Cloud.Edit(func(g *api.GatewaySpec) { g.Peers = append(g.Peers, added.Peer) }); err != nil {
		t.Fatal(err)
	}
	w.start(w.Cloud)
	s := newStranger(t, w.host("restarted", "203.0.113.68"), next, peer.Config{Name: "cloud", PublicKey: siteKey(w.Cloud), Endpoints: []netip.AddrPort{endpoint(w.Cloud)}})
	w.reaches(s, w.Cloud)
	if cert, err := s.client(w.Cloud).Identity(w.ctx, signingRequest(t, pkix.Name{})); err == nil {
		t.Errorf("the next key was issued %s", cert)
	}
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = g.Peers[:len(g.Peers)-1] })

	// The same key may come back at once.
	added.Peer.PublicKey = old.key.Public().String()
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, added); err != nil {
		t.Errorf("the same key again: %v", err)
	}
}

// A peer keeps its user when it has another key, and the key before does not come back to it.
func TestAUserSurvivesTheRotationOfThePeersKey(t *testing.T) {
	w := newWorld(t)
	w.peer()
	user := "postern:peer:" + auth.SelfNamed("edge", siteKey(w.Edge))
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if p.Identity == nil || p.Identity.User != user {
			return "no identity as " + user
		}
		return ""
	})
	before := siteKey(w.Edge)
	w.rotate(w.Edge, api.KeyRotateRequest{})
	w.connected(w.Cloud, w.Edge)
	p := w.awaitPeer(w.Cloud, "edge", func(p api.PeerStatus) string {
		if p.PublicKey == before.String() {
			return "it still has the old key"
		}
		return ""
	})
	if p.User != user {
		t.Errorf("after the rotation the user is %s, want %s", p.User, user)
	}
	if err := w.Cloud.Gateway.PeerRemove(w.ctx, "edge", true); err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(user, "postern:peer:")
	if len(name) > api.MaxNameLength {
		t.Fatalf("%s cannot be given", name)
	}
	add := func(k string) error {
		return w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: name, PublicKey: k, Allow: both}})
	}
	w.refused("the key before", add(before.String()), false, "until ")
	if err := add(siteKey(w.Edge).String()); err != nil {
		t.Errorf("the present key: %v", err)
	}
}

// dials is somebody with a key who dials cloud.
func (w *world) dials(host, addr string, key peer.PrivateKey) *stranger {
	w.t.Helper()
	return newStranger(w.t, w.host(host, addr), key, peer.Config{Name: "cloud", PublicKey: siteKey(w.Cloud), Endpoints: []netip.AddrPort{endpoint(w.Cloud)}})
}

// The key of a configured peer is changed where it is configured: it is the same peer, whose
// certificates live on, with the gateway up or down. Once it was removed it is another one.
func TestAConfiguredPeerKeepsItsUserWithAnotherKey(t *testing.T) {
	w := newWorld(t)
	const user = "postern:peer:prod"
	entry := func(k peer.PrivateKey) api.Peer {
		return api.Peer{Name: "prod", PublicKey: k.Public().String(), Allow: both}
	}
	is := func(k peer.PrivateKey) func(*api.GatewaySpec) {
		return func(g *api.GatewaySpec) { g.Peers = []api.Peer{entry(k)} }
	}
	none := func(g *api.GatewaySpec) { g.Peers = nil }
	first, second, third, fourth := newKey(t), newKey(t), newKey(t), newKey(t)
	w.mustEdit(w.Cloud, is(first))
	if got := w.dials("first", "203.0.113.66", first).user(w); got != user {
		t.Errorf("the first key is %s", got)
	}
	w.mustEdit(w.Cloud, is(second))
	w.audited(w.Cloud, "rotate", map[string]string{"peer": "prod", "publicKey": second.Public().String(), "reason": "configured"})
	if got := w.dials("second", "203.0.113.67", second).user(w); got != user {
		t.Errorf("the second key is %s", got)
	}
	w.stop(w.Cloud)
	if err := w.Cloud.Edit(is(third)); err != nil {
		t.Fatal(err)
	}
	w.start(w.Cloud)
	if got := w.dials("third", "203.0.113.68", third).user(w); got != user {
		t.Errorf("the third key is %s", got)
	}
	w.mustEdit(w.Cloud, none)
	refused := func(when string) {
		t.Helper()
		if err := w.edit(w.Cloud, is(fourth)); err == nil || !strings.Contains(err.Error(), "the name prod belongs to the key with the fingerprint "+peer.Fingerprint(third.Public())) {
			t.Errorf("another key after the removal, %s: %v", when, err)
		}
	}
	refused("at once")
	w.stop(w.Cloud)
	if err := w.Cloud.Edit(none); err != nil {
		t.Fatal(err)
	}
	w.start(w.Cloud)
	refused("after a restart without it")
	w.mustEdit(w.Cloud, is(third))
}

func TestAPeerObjectKeepsItsUserWithAnotherKey(t *testing.T) {
	w := newWorld(t, inCluster)
	first, second, third := newKey(t), newKey(t), newKey(t)
	set := func(k peer.PrivateKey) error {
		return w.Cloud.Gateway.SetPeers(w.ctx, []config.Peer{{Name: "prod", PublicKey: k.Public(), Allow: both}})
	}
	if err := set(first); err != nil {
		t.Fatal(err)
	}
	w.dials("first", "203.0.113.66", first).user(w)
	if err := set(second); err != nil {
		t.Fatalf("another key: %v", err)
	}
	if got := w.dials("second", "203.0.113.67", second).user(w); got != "postern:peer:prod" {
		t.Errorf("the second key is %s", got)
	}
	if err := w.Cloud.Gateway.SetPeers(w.ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := set(third); err == nil || !strings.Contains(err.Error(), "the name prod belongs to the key") {
		t.Errorf("another key after the removal: %v", err)
	}
}

// Nobody is named so that he would be the user of a peer that named itself, though that has
// no certificate yet.
func TestANameThatIsInAnotherPeersUserIsRefused(t *testing.T) {
	w := newWorld(t)
	m := enrol(w, api.InviteRequest{Allow: both}, "mallory", "203.0.113.66", "prod")
	p := api.Peer{Name: auth.SelfNamed("prod", m.key.Public()), PublicKey: newKey(t).Public().String(), Allow: both}
	const told = "is in the user of the peer with the fingerprint "
	w.refused("peer add", w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: p}), false, told+peer.Fingerprint(m.key.Public()))
	if err := w.edit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = []api.Peer{p} }); err == nil || !strings.Contains(err.Error(), told) {
		t.Errorf("the configuration file: %v", err)
	}
	text := w.invite(w.Cloud, api.InviteRequest{Name: p.Name, Allow: both})
	if _, err := redeemer(w, w.host("next", "203.0.113.67"), text).client(w.Cloud).Redeem(w.ctx, w.request(text, newKey(t), "next")); err == nil || !strings.Contains(err.Error(), told) {
		t.Errorf("redeem: %v", err)
	}
}
