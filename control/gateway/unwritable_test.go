package gateway_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/lab"
)

// unwritable takes a site's state directory away, as if its volume had gone, and gives
// what brings it back.
func (w *world) unwritable(s *lab.Site) (fix func()) {
	w.t.Helper()
	state := filepath.Join(filepath.Dir(s.File), "state")
	if err := os.Rename(state, state+".away"); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if err := os.Rename(state+".away", state); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestNothingIsGivenThatCannotBeStored(t *testing.T) {
	w := newWorld(t)
	w.peer()
	fix := w.unwritable(w.Cloud)
	w.namedEcho(w.Cloud, "echo", 7000, echoServer(t))
	key := newKey(t).Public().String()
	g := w.Cloud.Gateway
	for what, err := range map[string]error{
		"adding a peer":   g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "new", PublicKey: key}}),
		"a wider grant":   g.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: append([]string{"echo"}, both...)}),
		"making a ticket": errOf(g.Invite(w.ctx, api.InviteRequest{Allow: both})),
	} {
		if err == nil || !strings.Contains(err.Error(), "state") {
			t.Errorf("%s without a state directory: %v, want an error that names it", what, err)
		}
	}
	if _, there := w.status(w.Cloud, "new"); there {
		t.Error("a peer that was not stored is there")
	}
	if p, there := w.status(w.Cloud, "edge"); !there || !slices.Equal(p.Allow, both) {
		t.Errorf("the peer is shown as %+v, want as it was", p)
	}
	w.reach(w.Edge, w.Cloud)
	fix()
	if err := g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "new", PublicKey: key}}); err != nil {
		t.Errorf("adding a peer when the directory is back: %v", err)
	}
	w.stop(w.Cloud)
	w.start(w.Cloud)
	w.reach(w.Edge, w.Cloud)
	if _, there := w.status(w.Cloud, "new"); !there {
		t.Error("the added peer is gone after a restart")
	}
}

// A ticket that was taken is not lost if the joiner cannot store the peer: it says what to do, and the
// same ticket joins it afterwards.
func TestAJoinThatCannotBeStoredIsRepeated(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	fix := w.unwritable(w.Edge)
	_, err := w.tryJoin(w.Edge, text, api.JoinRequest{})
	w.refused("joining without a state directory", err, false, "cloud has taken the ticket", "could not store", "the same ticket")
	fix()
	w.join(w.Edge, text, api.JoinRequest{})
	w.connected(w.Cloud, w.Edge)
}

// Nor is one lost that cannot be taken, or whose reply cannot be stored or accepted.
func TestATicketThatCannotBeTakenIsGoodAfterwards(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	fix := w.unwritable(w.Cloud)
	_, err := w.tryJoin(w.Edge, text, api.JoinRequest{})
	w.refused("joining one without a state directory", err, false, "cloud failed to enrol this gateway", "check", "the same ticket")
	w.stop(w.Cloud)
	fix()
	short := api.JoinRequest{Wait: api.Duration(time.Second)}
	fix = w.unwritable(w.Edge)
	_, err = w.tryJoin(w.Edge, text, short)
	w.refused("waiting for the inviter without a state directory", err, false, "cloud does not answer", "could not store", "the same ticket")
	fix()
	reply := w.join(w.Edge, text, short).Reply
	w.stop(w.Edge) // or it would join by itself
	w.start(w.Cloud)
	fix = w.unwritable(w.Cloud)
	accept := func() error {
		return errOf(w.Cloud.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: reply, Wait: short.Wait}))
	}
	w.refused("accepting without a state directory", accept(), false, "could not be stored", "check", "nothing is lost")
	fix()
	if err := accept(); err != nil {
		t.Errorf("accepting when the directory is back: %v", err)
	}
	w.start(w.Edge)
	w.connected(w.Cloud, w.Edge)
}

func TestAGrantIsTakenBackThoughItCannotBeStored(t *testing.T) {
	w := newWorld(t)
	w.namedEcho(w.Cloud, "echo", 7000, echoServer(t))
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"echo"}}), api.JoinRequest{Local: map[string]string{"echo": "127.0.0.1:0"}})
	s := w.open(w.localAddress(w.Edge, "cloud", "echo"))
	fix := w.unwritable(w.Cloud)
	g := w.Cloud.Gateway
	// One grant goes and another comes: only the first may count unstored.
	w.refused("replacing a grant", g.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: []string{api.ServiceAuth}}), false,
		"edge may reach [] here now", "not stored", "restarts", "repeat")
	s.resetWithin(removal)
	if p, _ := w.status(w.Cloud, "edge"); len(p.Allow) != 0 {
		t.Errorf("the peer may reach %v, want nothing", p.Allow)
	}
	fix()
	if err := g.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: []string{api.ServiceAuth}}); err != nil {
		t.Errorf("repeated when the directory is back: %v", err)
	}
	w.stop(w.Cloud)
	w.start(w.Cloud)
	if p, _ := w.status(w.Cloud, "edge"); !slices.Equal(p.Allow, []string{api.ServiceAuth}) {
		t.Errorf("after a restart the peer may reach %v, want auth", p.Allow)
	}
}

func TestAPeerIsRemovedThoughItCannotBeStored(t *testing.T) {
	w := newWorld(t)
	w.namedEcho(w.Cloud, "echo", 7000, echoServer(t))
	ticket := w.invite(w.Cloud, api.InviteRequest{Allow: []string{"echo"}})
	w.join(w.Edge, ticket, api.JoinRequest{Local: map[string]string{"echo": "127.0.0.1:0"}})
	s := w.open(w.localAddress(w.Edge, "cloud", "echo"))
	fix := w.unwritable(w.Cloud)
	g := w.Cloud.Gateway
	remove := func() error { return g.PeerRemove(w.ctx, "edge", true) }
	w.refused("removing the peer", remove(), false, "edge is removed", "not stored", "restarts", "repeat")
	s.resetWithin(removal)
	w.audited(w.Cloud, "remove", map[string]string{"peer": "edge"})
	if _, there := w.status(w.Cloud, "edge"); there {
		t.Error("the removed peer is still shown")
	}
	if r, err := w.Edge.Gateway.Ping(w.ctx, "cloud", api.PingRequest{Layer: "overlay"}); err == nil && r.Error == "" {
		t.Error("the removed peer still gets answers")
	}
	w.refused("repeating it too early", remove(), false, "edge is removed", "not stored")
	fix()
	if err := remove(); err != nil {
		t.Errorf("repeated when the directory is back: %v", err)
	}
	w.stop(w.Cloud)
	w.start(w.Cloud)
	if _, there := w.status(w.Cloud, "edge"); there {
		t.Error("the removed peer came back with a restart")
	}
}
