package gateway_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/history"
	"github.com/postern-dev/postern/testenv/lab"
)

// history is what a site keeps of a peer.
func (w *world) history(s *lab.Site, name string) (api.History, api.PeerHistory) {
	w.t.Helper()
	h, err := s.Gateway.History(w.ctx, api.HistoryRequest{Peers: []string{name}})
	if err != nil || len(h.Peers) != 1 || h.Peers[0].Peer != name {
		w.t.Fatalf("the history of %s at %s: %+v, %v", name, s.Name, h, err)
	}
	return h, h.Peers[0]
}

// awaitEvent waits for an event of a kind, of which the code is one, and gives it.
func (w *world) awaitEvent(s *lab.Site, name string, kind api.EventKind, holds func(api.HistoryEvent) bool) (e api.HistoryEvent) {
	w.t.Helper()
	w.await(s.Name+" keeps of "+name+" a "+string(kind), func() string {
		_, p := w.history(s, name)
		i := slices.IndexFunc(p.Events, func(e api.HistoryEvent) bool { return e.Kind == kind && holds(e) })
		if i < 0 {
			return "there is none"
		}
		e = p.Events[i]
		return ""
	})
	return e
}

func anyEvent(api.HistoryEvent) bool { return true }

// An outage of a peer, seen afterwards: that it joined, what was found, its restart, and how it was all the
// time, as status had it.
func TestAnOutageIsKept(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.inbound(w.Edge, "cloud", "ok, ok, ok")
	w.awaitEvent(w.Edge, "cloud", api.EventJoined, anyEvent)
	w.awaitEvent(w.Edge, "cloud", api.EventPath, anyEvent)
	w.await("edge keeps that cloud is well", func() string {
		h, p := w.history(w.Edge, "cloud")
		last := history.At(p.Points, h.To)
		all := api.Outcomes{Auth: api.OK, APIServer: api.OK, Gateway: api.OK}
		if last.State != api.StateConnected || last.Path != api.PathDirect || last.RTTSeconds == 0 || last.Outbound != all || last.Inbound != all {
			return "the last point is not that"
		}
		return ""
	})
	w.stop(w.Cloud)
	if _, err := w.Edge.Gateway.Check(w.ctx, api.CheckRequest{Peer: "cloud"}); err != nil {
		t.Fatal(err)
	}
	found := w.awaitEvent(w.Edge, "cloud", api.EventVerdict, func(e api.HistoryEvent) bool { // there may be others, from when they met
		return e.Check == api.ServiceGateway && e.Direction == api.DirectionOutbound && e.Verdict == api.Error && e.Until == nil
	})
	if found.Code == "" || found.Event == "" || found.Reason == "" {
		t.Errorf("what was found is %+v", found)
	}
	w.await("a point tells of the outage", func() string { // which is looked at every second
		_, p := w.history(w.Edge, "cloud")
		if !slices.ContainsFunc(p.Points, func(x api.HistoryPoint) bool { return x.Outbound.Gateway == api.Error }) {
			return fmt.Sprintf("none of %+v does", p.Points)
		}
		return ""
	})
	w.start(w.Cloud)
	w.awaitEvent(w.Edge, "cloud", api.EventRestart, anyEvent)
	gone := w.awaitEvent(w.Edge, "cloud", api.EventVerdict, func(e api.HistoryEvent) bool {
		return e.At.Equal(found.At) && e.Code == found.Code && e.Direction == found.Direction && e.Until != nil
	})
	if !gone.Until.After(found.At) {
		t.Errorf("what was found at %v went at %v", found.At, gone.Until)
	}
	h, _ := w.history(w.Edge, "cloud")
	st, err := w.Edge.Gateway.Status(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if since := st.Gateway.StartedAt.Truncate(time.Second); !h.Since.Equal(since) || h.Kind != "History" || h.Gateway != "edge" {
		t.Errorf("the history is of %s since %v, and edge runs since %v", h.Gateway, h.Since, since)
	}
	// Cloud was restarted, and knows nothing of the time before.
	if h, p := w.history(w.Cloud, "edge"); h.Since.Before(found.At.Truncate(time.Second)) || slices.ContainsFunc(p.Events, func(e api.HistoryEvent) bool { return e.Kind == api.EventJoined }) {
		t.Errorf("after its restart cloud keeps a history since %v: %+v", h.Since, p.Events)
	}
}

func TestARotationIsKeptAndARemovedPeerIsNot(t *testing.T) {
	w := newWorld(t)
	w.peer()
	out := w.rotate(w.Cloud, api.KeyRotateRequest{})
	e := w.awaitEvent(w.Edge, "cloud", api.EventKey, anyEvent)
	if !out.Rotated || e.Reason == "" {
		t.Errorf("the rotation is %+v, kept as %+v", out, e)
	}
	w.awaitEvent(w.Edge, "cloud", api.EventJoined, anyEvent) // from before
	if err := w.Edge.Gateway.PeerRemove(w.ctx, "cloud", true); err != nil {
		t.Fatal(err)
	}
	_, err := w.Edge.Gateway.History(w.ctx, api.HistoryRequest{Peers: []string{"cloud"}})
	w.refused("the history of a peer that is gone", err, true, `no peer is called "cloud"`)
	h, err := w.Edge.Gateway.History(w.ctx, api.HistoryRequest{})
	if err != nil || h.Peers == nil || len(h.Peers) > 0 {
		t.Errorf("without peers the history is %+v, %v", h, err)
	}
}

// What status has beside the endpoints, such as a path that takes small packets only, is kept too.
func TestWhatIsBesideTheEndpointsIsKept(t *testing.T) {
	w := newWorld(t)
	paris, rome := w.wideSite("paris", "203.0.113.77", 8920, 9000), w.wideSite("rome", "203.0.113.78", 8920, 1300)
	w.join(rome, w.invite(paris, api.InviteRequest{}), api.JoinRequest{})
	w.connected(paris, rome)
	w.awaitPeer(rome, "paris", func(p api.PeerStatus) string {
		if p.Reachability.Beside == "" { // a check on a busy machine may not find it
			w.look(rome, "paris")
		}
		h, kept := w.history(rome, "paris")
		found, x := p.Reachability.Beside, history.At(kept.Points, h.To)
		if found == "" || x.Outbound.Beside != found {
			return fmt.Sprintf("status has %q, and the last point %q", found, x.Outbound.Beside)
		}
		return ""
	})
}
