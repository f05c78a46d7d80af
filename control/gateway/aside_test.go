package gateway_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tunnel/peer"
)

// spoil changes the peers in the state directory of a gateway that does not run.
func (w *world) spoil(s *lab.Site, change func(*state.Peers) error) {
	w.t.Helper()
	cfg, err := config.Load(s.File, config.Overrides{})
	if err != nil {
		w.t.Fatal(err)
	}
	store, err := state.Open(cfg.StateDir, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer store.Close()
	if err := store.Update(change); err != nil {
		w.t.Fatal(err)
	}
}

// A peer in the state directory that cannot be does not keep the gateway, and the others, from
// running. It is shown, stays away, and can be removed.
func TestAPeerThatCannotBeStandsAside(t *testing.T) {
	stock := func(name, prefix string) state.Peer {
		return state.Peer{Name: name, PublicKey: newKey(t).Public(), Stock: true, AllowedIPs: []netip.Prefix{netip.MustParsePrefix(prefix)}}
	}
	for what, bad := range map[string]func(own peer.PublicKey) []state.Peer{
		"this gateway's own key": func(own peer.PublicKey) []state.Peer { return []state.Peer{{Name: "bad", PublicKey: own}} },
		"a key of low order":     func(peer.PublicKey) []state.Peer { return []state.Peer{{Name: "bad", PublicKey: peer.PublicKey{1}}} },
		"another peer's address": func(peer.PublicKey) []state.Peer {
			return []state.Peer{stock("aaa", "10.9.0.0/16"), stock("bad", "10.9.1.0/24")}
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.peer()
			own := siteKey(w.Cloud)
			w.stop(w.Cloud)
			w.spoil(w.Cloud, func(all *state.Peers) error {
				for _, p := range bad(own) {
					if err := all.Put(p); err != nil {
						return err
					}
				}
				return nil
			})
			w.start(w.Cloud)
			w.connected(w.Cloud, w.Edge)
			if _, there := w.status(w.Cloud, "bad"); there {
				t.Error("the bad entry is shown as a peer")
			}
			told := func() string {
				r, err := w.Cloud.Gateway.Checks(w.ctx)
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range r.Checks {
					if c.Code == string(catalogue.EntryAside) && strings.Contains(c.Cause, `"bad" of peers.json`) {
						return ""
					}
				}
				return "no check says so"
			}
			w.await("a check tells of the entry", told)
			// Its name is not for others, and it does not come back by itself.
			_, err := w.tryJoin(w.addSite("bad", "203.0.113.57"), w.invite(w.Cloud, api.InviteRequest{}), api.JoinRequest{})
			w.refused("joining by its name", err, false, `"bad"`)
			w.stop(w.Cloud)
			w.start(w.Cloud)
			w.await("a check tells of the entry again", told)
			if err := w.Cloud.Gateway.PeerRemove(w.ctx, "bad", false); err != nil {
				t.Fatal(err)
			}
			if told() == "" {
				t.Error("the entry was removed and is still told of")
			}
			w.refused("removing it again", w.Cloud.Gateway.PeerRemove(w.ctx, "bad", false), true, `"bad"`)
		})
	}
}

// What a peer announced does not count when it is this gateway's own key. The peer does: the check
// does not advise to remove it. Another announcement ends the warning; so does removing the peer,
// which can join again by its name.
func TestAnAnnouncedKeyThatIsOursStandsAside(t *testing.T) {
	told := func(w *world) (fix string) {
		r, err := w.Cloud.Gateway.Checks(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Checks {
			if c.Code == string(catalogue.EntryAside) {
				fix += c.Cause + ": " + c.Fix
			}
		}
		return fix
	}
	for what, end := range map[string]func(*world){
		"the peer rotates": func(w *world) {
			w.rotate(w.Edge, api.KeyRotateRequest{})
			w.connected(w.Cloud, w.Edge)
		},
		"the peer is removed": func(w *world) {
			if err := w.Cloud.Gateway.PeerRemove(w.ctx, "edge", true); err != nil {
				t.Fatal(err)
			}
			if err := w.Edge.Gateway.PeerRemove(w.ctx, "cloud", true); err != nil {
				t.Fatal(err)
			}
			w.peer()
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			announceOurs(t, w)
			w.await("a check tells how to end it", func() string {
				if fix := told(w); !strings.Contains(fix, "edge announced") || !strings.Contains(fix, "do not remove edge") || !strings.Contains(fix, "`postern key rotate`") {
					return fix
				}
				return ""
			})
			end(w)
			w.await("it is told of no more", func() string { return told(w) })
		})
	}
}

// announceOurs has the cloud start with an announcement of its own key by the edge.
func announceOurs(t *testing.T, w *world) {
	t.Helper()
	w.peer()
	own := siteKey(w.Cloud)
	w.stop(w.Cloud)
	w.spoil(w.Cloud, func(all *state.Peers) error {
		edge, _ := all.Get("edge")
		edge.NextKey = own
		return all.Put(edge)
	})
	w.start(w.Cloud)
	w.connected(w.Cloud, w.Edge)
	for _, p := range w.Cloud.Gateway.Joined() {
		if !p.NextKey.IsZero() {
			t.Errorf("%s still has announced %s", p.Name, p.NextKey)
		}
	}
}
