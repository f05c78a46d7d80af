package gateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tunnel/peer"
)

// unharmed checks that edge is a peer of cloud's as it was before somebody used its key.
func (w *world) unharmed(before api.PeerStatus) {
	w.t.Helper()
	after, _ := w.status(w.Cloud, "edge")
	if len(after.Allow) != len(before.Allow) || after.PublicKey != before.PublicKey {
		w.t.Errorf("edge may reach %v with the key %s, want %v and %s", after.Allow, after.PublicKey, before.Allow, before.PublicKey)
	}
	// A session that is up outlives its preshared key: edge has to come back without one.
	w.stop(w.Edge)
	w.start(w.Edge)
	w.reach(w.Cloud, w.Edge)
}

// A public key is no secret. Whoever has a fresh ticket cannot redeem it for a peer's.
func TestATicketIsNotRedeemedForAnothersKey(t *testing.T) {
	for name, use := range map[string]func(w *world, text string, victim peer.PublicKey) error{
		"in-band": func(w *world, text string, victim peer.PublicKey) error {
			_, err := redeemer(w, w.host("thief", "203.0.113.60"), text).client(w.Cloud).Redeem(w.ctx, ticket.Request{PublicKey: victim, Name: "edge"})
			return err
		},
		"by a reply": func(w *world, text string, victim peer.PublicKey) error {
			reply, err := ticket.EncodeReply(ticketKeys(w.t, text), ticket.Request{PublicKey: victim, Name: "edge"})
			if err != nil {
				w.t.Fatal(err)
			}
			_, err = w.Cloud.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: reply, Wait: api.Duration(time.Millisecond)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer()
			before, _ := w.status(w.Cloud, "edge")
			text := w.invite(w.Cloud, api.InviteRequest{Allow: []string{api.ServiceAuth}})
			if err := use(w, text, siteKey(w.Edge)); err == nil {
				t.Error("the ticket was redeemed for edge's key by somebody else")
			}
			w.unharmed(before)
		})
	}
}

// The next key of the gateway itself is announced to its peers. It does not become a peer's,
// which would keep the gateway from starting with it.
func TestTheGatewaysOwnNextKeyDoesNotBecomeAPeers(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.stop(w.Edge)
	w.rotate(w.Cloud, api.KeyRotateRequest{Wait: 1})
	next := w.ownKey(w.Cloud, "private.key.next")
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	if _, err := redeemer(w, w.host("thief", "203.0.113.60"), text).client(w.Cloud).Redeem(w.ctx, w.request(text, next, "mole")); !errors.Is(err, ticket.ErrKeyTaken) {
		t.Errorf("redeeming a ticket for the gateway's own next key: got %v, want %v", err, ticket.ErrKeyTaken)
	}
	err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "mole", PublicKey: next.Public().String()}})
	w.refused("adding a peer with the gateway's own next key", err, false, "this gateway's own next key")
	if out := w.rotate(w.Cloud, api.KeyRotateRequest{Wait: 1, Force: true}); !out.Rotated {
		t.Errorf("forced: %+v", out)
	}
}

// Whatever somebody holds already becomes nobody's by a ticket, though its holder proves it.
func TestAKeyThatIsInUseDoesNotRedeemATicket(t *testing.T) {
	w := newWorld(t)
	present, next := newKey(t), newKey(t)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "here", PublicKey: present.Public().String()}}); err != nil {
		t.Fatal(err)
	}
	here := newStranger(t, w.host("here", "203.0.113.99"), present, peer.Config{
		Name: "cloud", PublicKey: siteKey(w.Cloud), Endpoints: []netip.AddrPort{endpoint(w.Cloud)},
	})
	proof, err := auth.RotationProof(next, siteKey(w.Cloud), present.Public(), next.Public(), peer.PresharedKey{})
	if err != nil {
		t.Fatal(err)
	}
	if err := here.client(w.Cloud).Rotate(w.ctx, auth.Announcement{Next: next.Public(), Proof: proof}); err != nil {
		t.Fatal(err)
	}
	pending := newKey(t)
	waiting := w.invite(w.Cloud, api.InviteRequest{Allow: both, Approve: true})
	if _, err := redeemer(w, w.host("waiting", "203.0.113.61"), waiting).client(w.Cloud).Redeem(w.ctx, w.request(waiting, pending, "waiting")); err != nil {
		t.Fatal(err)
	}
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	asks := redeemer(w, w.host("asks", "203.0.113.60"), text).client(w.Cloud)
	for what, c := range map[string]struct {
		key           peer.PrivateKey
		tells, audits string
	}{
		"a peer's":               {present, "postern peer allow", "the key of peer here"},
		"a pending peer's":       {pending, "postern peer allow", "the key of peer waiting"},
		"a peer's next key":      {next, "postern peer allow", "the key that peer here announced"},
		"that of another ticket": {ticketKeys(t, waiting).OneTime, "cannot be a peer's", "the one-time key of a ticket"},
	} {
		_, err := asks.Redeem(w.ctx, w.request(text, c.key, "another"))
		if !errors.Is(err, ticket.ErrKeyTaken) || !strings.Contains(err.Error(), c.tells) || strings.Contains(err.Error(), "here announced") {
			t.Errorf("%s: got %v, want %v and %q", what, err, ticket.ErrKeyTaken, c.tells)
		}
		w.audited(w.Cloud, "refuse", map[string]string{"publicKey": c.key.Public().String(), "reason": c.audits})
	}
	// By a reply it is the operator here who is told, and may know whose it is.
	q := w.prove(ticket.ByReply, text, present, ticket.Request{Name: "another"})
	reply, err := ticket.EncodeReply(ticketKeys(t, text), q)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Cloud.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: reply})
	w.refused("accepting a peer's reply to another ticket", err, false, "the key of peer here", "postern peer remove here")
}

// What a ticket granted is over once its peer is removed, though that has another key by then.
func TestARemovedPeerDoesNotComeBackByTheReplyOfItsFormerKey(t *testing.T) {
	w := newWorld(t)
	// Edge is behind the NAT, so cloud answers by a reply, and has another key later.
	got := w.join(w.Cloud, w.invite(w.Edge, api.InviteRequest{Allow: both}), api.JoinRequest{Allow: both, Wait: api.Duration(time.Second)})
	if _, err := w.Edge.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: got.Reply}); err != nil {
		t.Fatal(err)
	}
	w.connected(w.Cloud, w.Edge)
	out := w.rotate(w.Cloud, api.KeyRotateRequest{})
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if p.PublicKey != out.PublicKey {
			return "it has the key " + p.PublicKey
		}
		return ""
	})
	if err := w.Edge.Gateway.PeerRemove(w.ctx, "cloud", true); err != nil {
		t.Fatal(err)
	}
	_, err := w.Edge.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: got.Reply, Wait: api.Duration(time.Millisecond)})
	w.refused("accepting the old reply", err, false, "was removed")
	if p, there := w.status(w.Edge, "cloud"); there {
		t.Errorf("the removed peer is back: %+v", p)
	}
}

// hostileTicket is one of nobody's: it names a key that its maker does not hold.
func hostileTicket(t *testing.T, inviter peer.PublicKey, name string) string {
	t.Helper()
	seed, err := ticket.NewSeed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := ticket.Ticket{Seed: seed, Inviter: inviter, Name: name, Expires: time.Now().Add(time.Hour)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Anybody can make a ticket that names a peer's key. When an operator joins it, the peer stays
// what it is: it does not come to be approved, is not cut off and is no gateway if it was none.
func TestATicketThatNamesAPeersKeyChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		peer  func(w *world) peer.PublicKey // called edge
		state api.PeerState
		tells string
	}{
		"a peer that waits for approval": {func(w *world) peer.PublicKey {
			text, key := w.invite(w.Cloud, api.InviteRequest{Allow: both, Approve: true}), newKey(w.t)
			if _, err := redeemer(w, w.host("evil", "203.0.113.60"), text).client(w.Cloud).Redeem(w.ctx, w.request(text, key, "edge")); err != nil {
				w.t.Fatal(err)
			}
			return key.Public()
		}, api.StatePending, "postern peer approve edge"},
		"a peer that has yet to connect": {func(w *world) peer.PublicKey {
			got := w.join(w.Cloud, hostileTicket(w.t, siteKey(w.Edge), "edge"), api.JoinRequest{Wait: api.Duration(time.Millisecond)})
			if got.Outcome != api.JoinReply {
				w.t.Fatalf("join: %+v", got)
			}
			return siteKey(w.Edge)
		}, api.StateConnecting, "postern peer remove edge"},
		"a stock peer": {func(w *world) peer.PublicKey {
			key := newKey(w.t).Public()
			if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{
				Name: "edge", PublicKey: key.String(), Stock: true, AllowedIPs: []string{"2001:db8:7::/120"},
			}}); err != nil {
				w.t.Fatal(err)
			}
			return key
		}, api.StateConnecting, "postern peer remove edge"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			key := c.peer(w)
			before := w.stored(w.Cloud, "edge")
			_, err := w.Cloud.Gateway.Join(w.ctx, api.JoinRequest{Ticket: hostileTicket(t, key, "edge"), Wait: api.Duration(time.Millisecond)})
			w.refused("a ticket of nobody's", err, false, c.tells)
			if p, _ := w.status(w.Cloud, "edge"); p.State != c.state {
				t.Errorf("edge is %s, want %s", p.State, c.state)
			}
			if after := w.stored(w.Cloud, "edge"); after != before {
				t.Errorf("edge is stored as\n%s\nwant\n%s", after, before)
			}
		})
	}
}

// stored is a peer as a site's state directory has it.
func (w *world) stored(s *lab.Site, name string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(s.File), "state", "peers.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	_, body, _ := bytes.Cut(b, []byte("\n"))
	var file struct{ Peers []json.RawMessage }
	if err := json.Unmarshal(body, &file); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range file.Peers {
		var named struct{ Name string }
		if json.Unmarshal(p, &named) == nil && named.Name == name {
			return string(p)
		}
	}
	w.t.Fatalf("%s has stored no peer %s", s.Name, name)
	return ""
}

// A reply passes through the hands of people. Who reads it there, and has the ticket, does not
// redeem by the proof in it.
func TestTheProofOfAReplyIsNoneInBand(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	q := w.prove(ticket.ByReply, text, newKey(t), ticket.Request{Name: "edge"})
	if _, err := redeemer(w, w.host("thief", "203.0.113.60"), text).client(w.Cloud).Redeem(w.ctx, q); !errors.Is(err, ticket.ErrProof) {
		t.Errorf("got %v, want %v", err, ticket.ErrProof)
	}
}
