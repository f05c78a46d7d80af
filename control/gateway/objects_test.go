package gateway_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/ticket"
)

func TestThatAPeerHasAnObjectOutlivesARestart(t *testing.T) {
	w := newWorld(t, inCluster)
	w.peer()
	key := w.Cloud.Gateway.Joined()[0].PublicKey
	if err := w.Cloud.Gateway.NoteObject("edge", key); err != nil {
		t.Fatal(err)
	}
	if err := w.Cloud.Gateway.NoteObject("nobody", key); err != nil {
		t.Errorf("a peer that has gone meanwhile: %v", err)
	}
	w.stop(w.Cloud)
	w.start(w.Cloud)
	got := w.Cloud.Gateway.Joined()
	if len(got) != 1 || got[0].Name != "edge" || got[0].ObjectKey != key {
		t.Errorf("after a restart: %+v", got)
	}
}

func TestARevokedTicketAdmitsNobody(t *testing.T) {
	w := newWorld(t)
	made, err := w.Cloud.Gateway.InviteFor(w.ctx, api.InviteRequest{Allow: both}, "the-uid")
	if err != nil {
		t.Fatal(err)
	}
	is := func() ticket.Standing {
		t.Helper()
		list := w.Cloud.Gateway.Tickets()
		i := slices.IndexFunc(list, func(s ticket.Standing) bool { return s.Object == "the-uid" })
		if i < 0 {
			t.Fatalf("the book has %+v", list)
		}
		return list[i]
	}
	if s := is(); s.State != ticket.Open || s.ID.String() != made.ID {
		t.Errorf("the ticket is %+v", s)
	}
	if err := w.Cloud.Gateway.Revoke(made.ID); err != nil {
		t.Fatal(err)
	}
	if s := is(); s.State != ticket.Expired {
		t.Errorf("a revoked ticket is %s", s.State)
	}
	got := w.join(w.Edge, made.Ticket, api.JoinRequest{Wait: api.Duration(2 * time.Second)})
	if got.Outcome != api.JoinReply {
		t.Errorf("a join with a revoked ticket gave %+v, want that nobody answers", got)
	}
	if _, err := w.Cloud.Gateway.Accept(w.ctx, api.AcceptRequest{Reply: got.Reply}); err == nil {
		t.Error("a reply to a revoked ticket was accepted")
	}
	w.refused("revoke", w.Cloud.Gateway.Revoke("nonsense"), true, "no ticket id")
}

func TestAnObjectThatCannotBeDoesNotKeepAGatewayFromStarting(t *testing.T) {
	twin := newKey(t).Public()
	w := newWorld(t, inCluster, func(site string, o *gateway.Options) {
		if site == "cloud" {
			o.ClusterPeers = []config.Peer{{Name: "one", PublicKey: twin}, {Name: "two", PublicKey: twin}, {Name: "edge", Joined: true, PublicKey: newKey(t).Public()}}
		}
	})
	if s, err := w.Cloud.Gateway.Status(w.ctx); err != nil || len(s.Peers) != 0 {
		t.Errorf("it has started with %+v, %v", s.Peers, err)
	}
	if err := w.Cloud.Gateway.SetPeers(w.ctx, []config.Peer{{Name: "one", PublicKey: twin}}); err != nil {
		t.Fatal(err)
	}
	if _, there := w.status(w.Cloud, "one"); !there {
		t.Error("the one that is good is no peer")
	}
}
