package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/lab"
)

// inbound waits until a site shows what its peer says of reaching it: in the order
// gateway, auth, apiServer a verdict and, where there is one, its code. "any" is for that
// of the gateway where a test is about another: a busy machine loses echoes as a bad path does. Where
// it is about that, and where the peer says that it is starved, the peer looks again.
func (w *world) inbound(s *lab.Site, peer, want string) api.Targets {
	w.t.Helper()
	p := w.awaitPeer(s, peer, func(p api.PeerStatus) string {
		var got []string
		for _, v := range []api.Verdict{p.Reachability.Inbound.Gateway, p.Reachability.Inbound.Auth, p.Reachability.Inbound.APIServer} {
			got = append(got, strings.TrimSpace(fmt.Sprint(v.Verdict, " ", v.Code)))
		}
		if strings.HasPrefix(want, "any, ") {
			got[0] = "any"
		}
		if is := strings.Join(got, ", "); is != want {
			v := p.Reachability.Inbound.Gateway.Verdict
			if got[0] != "any" && (v == api.Warning || v == api.Error) || strings.Contains(is, string(catalogue.ProcessStarved)) {
				w.look(map[string]*lab.Site{"cloud": w.Cloud, "edge": w.Edge}[peer], s.Name)
			}
			return fmt.Sprintf("inbound is %q, want %q", is, want)
		}
		return ""
	})
	return p.Reachability.Inbound
}

// look has a site check a peer again.
func (w *world) look(s *lab.Site, peer string) {
	w.t.Helper()
	if _, err := s.Gateway.Check(w.ctx, api.CheckRequest{Peer: peer}); err != nil {
		w.t.Fatalf("check of %s at %s: %v", peer, s.Name, err)
	}
}

// What only the peer can see is shown here, in words for here.
func TestPeersTellEachOtherWhatTheyReach(t *testing.T) {
	w := newWorld(t)
	begun := time.Now()
	w.peer()
	got := w.inbound(w.Cloud, "edge", "ok, ok, ok")
	w.inbound(w.Edge, "cloud", "ok, ok, ok")
	if v := got.APIServer; v.CheckedAt == nil || v.CheckedAt.Before(begun.Add(-time.Second)) || v.RTTSeconds <= 0 || v.Via != "in-band" {
		t.Errorf("a verdict that was reported lacks something: %+v", v)
	}

	if err := w.Cloud.API.Close(); err != nil {
		t.Fatal(err)
	}
	w.look(w.Edge, "cloud")
	w.look(w.Cloud, "edge")
	got = w.inbound(w.Cloud, "edge", "any, ok, error PST0310") // what edge finds (PST0301) follows from it
	if v := got.APIServer; !strings.Contains(v.Cause, w.Cloud.API.Addr()) || strings.Contains(v.Fix, "at cloud") || !strings.Contains(v.Fix, "spec.services.apiServer.address") {
		t.Errorf("the verdict is not worded for the one who offers the service: %+v", v)
	}
	w.inbound(w.Edge, "cloud", "any, ok, ok")
}

func TestAServiceThatIsNotGrantedIsOffAtBothEnds(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.inbound(w.Cloud, "edge", "any, ok, ok")
	if err := w.Cloud.Gateway.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: []string{api.ServiceAuth}}); err != nil {
		t.Fatal(err)
	}
	w.look(w.Edge, "cloud")
	w.inbound(w.Cloud, "edge", "any, ok, off PST0307")
}

// A gateway that has just started has no reports, and is told at once.
func TestReportsComeBackAfterARestart(t *testing.T) {
	w := newWorld(t, func(_ string, o *gateway.Options) { o.CheckRetry = 500 * time.Millisecond })
	w.peer()
	w.inbound(w.Cloud, "edge", "any, ok, ok")
	w.stop(w.Cloud)
	w.start(w.Cloud)
	w.inbound(w.Cloud, "edge", "any, ok, ok")
}
