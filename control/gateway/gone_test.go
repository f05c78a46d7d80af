package gateway_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/lab"
)

// A gateway that was stopped is called gone as soon as the path finder knows, while its last
// session is still young: its host says that nobody listens.
func TestAPeerThatIsGoneIsSaidToBeGone(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.stop(w.Cloud)
	p := w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		switch v := p.Reachability.Outbound.Gateway; {
		case p.Path.Kind != api.PathNone:
			return "a path is still shown"
		case v.Verdict != api.Error || v.Code != string(catalogue.NothingListens):
			return "the verdict is " + string(v.Verdict) + " " + v.Code + ": " + v.Cause
		}
		return ""
	})
	v := p.Reachability.Outbound.Gateway
	if !strings.Contains(v.Cause, "says that nothing listens") ||
		!strings.Contains(v.Fix, "at cloud, start the gateway") {
		t.Errorf("got %s: %s; fix: %s", v.Code, v.Cause, v.Fix)
	}
	last := p.Path.History[0].At
	for _, e := range p.Path.History {
		if e.At.Before(last) {
			t.Errorf("the history is out of order at %v %s", e.At, e.Event)
		}
		last = e.At
	}
}

// Who looks at a peer that has just been cut off sees that nothing confirms it, at both ends and
// long before it counts as gone.
func TestAPeerThatIsCutOffIsNotShownAsWell(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.inbound(w.Edge, "cloud", "any, ok, ok")
	cut := time.Now()
	w.Cloud.Host.Link().SetDown(true)
	for s, name := range map[*lab.Site]string{w.Edge: "cloud", w.Cloud: "edge"} { // each sends something
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if r, err := s.Gateway.Ping(ctx, name, api.PingRequest{Layer: "overlay"}); err == nil && r.Error == "" {
			t.Errorf("%s reaches %s", s.Name, name)
		}
	}
	shown := func(s *lab.Site, name string, want api.PeerState) api.PeerStatus {
		return w.awaitPeer(s, name, func(p api.PeerStatus) string {
			if p.Shown() != want {
				return "it is shown as " + string(p.Shown())
			}
			return ""
		})
	}
	for s, name := range map[*lab.Site]string{w.Edge: "cloud", w.Cloud: "edge"} {
		p := shown(s, name, api.StateUnconfirmed)
		if p.State != api.StateConnected || p.UnconfirmedSince.Before(cut.Add(-time.Second)) {
			t.Errorf("at %s it is %s, in doubt since %v; it was cut off at %v", s.Name, p.State, p.UnconfirmedSince, cut)
		}
	}
	w.Cloud.Host.Link().SetDown(false)
	shown(w.Edge, "cloud", api.StateConnected)
	shown(w.Cloud, "edge", api.StateConnected)
}

// A peer that was removed is told by who did it, and is not sent to look for a firewall.
func TestARemovedPeerIsToldSo(t *testing.T) {
	w := newWorld(t)
	w.peer()
	if err := w.Cloud.Gateway.PeerRemove(w.ctx, "edge", true); err != nil {
		t.Fatal(err)
	}
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if v := p.Reachability.Outbound.Gateway; v.Code != string(catalogue.RemovedByPeer) {
			return "the verdict is " + string(v.Verdict) + " " + v.Code + ": " + v.Cause
		}
		if p.State == api.StateConnected || !strings.Contains(p.Reason, "none of its peers") {
			return "cloud is " + string(p.State) + ": " + p.Reason
		}
		return ""
	})
	// Whoever comes back by a ticket is a peer again.
	if err := w.Edge.Gateway.PeerRemove(w.ctx, "cloud", true); err != nil {
		t.Fatal(err)
	}
	w.peer()
	w.reach(w.Cloud, w.Edge)
}
