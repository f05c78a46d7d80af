package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/patience"
)

// An API server that fails now and then is shown so while it works, at both ends and wherever a
// verdict is shown.
func TestAServerThatComesAndGoesIsShownAtBothEnds(t *testing.T) {
	w := newWorld(t, checkOften)
	w.peer()
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
	const code = string(catalogue.Intermittent)
	const apart = 21 * time.Second // a check must have worked for 20 s before it fails again
	var v api.Verdict
	for deadline := time.After(patience.Left()); v.Code != code; {
		select {
		case <-deadline:
			t.Fatalf("edge does not show it: %+v", v)
		default:
		}
		w.Cloud.API.Answer(http.StatusInternalServerError, 0)
		w.apiServerVerdict(w.Edge, "cloud", api.Error)
		w.Cloud.API.Answer(0, 0)
		var works time.Time
		v = w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
			v := p.Reachability.Outbound.APIServer
			switch {
			case v.Verdict == api.Warning:
				return ""
			case v.Verdict != api.OK:
				works = time.Time{}
				return "the API server is " + string(v.Verdict)
			case works.IsZero():
				works = *v.CheckedAt
			}
			if since := v.CheckedAt.Sub(works); since < apart {
				return "the API server has worked for only " + since.String()
			}
			return ""
		}).Reachability.Outbound.APIServer
	}
	// On a busy machine the last failure may be a timeout.
	if v.Verdict != api.Warning || !strings.Contains(v.Cause, "with PST030") || !strings.Contains(v.Cause, ": the API server of cloud") || !strings.Contains(v.Fix, "at cloud, see ") {
		t.Errorf("edge shows %+v", v)
	}
	w.awaitPeer(w.Cloud, "edge", func(p api.PeerStatus) string {
		if v := p.Reachability.Inbound.APIServer; v.Verdict != api.Warning || v.Code != code || !strings.Contains(v.Cause, "the API server of this gateway") {
			return "cloud shows " + string(v.Verdict) + " " + v.Code + ": " + v.Cause
		}
		return ""
	})
	report, err := w.Edge.Gateway.Checks(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(report.Checks, func(c api.Check) bool {
		return c.Name == api.ServiceAPIServer && c.Code == code && c.Verdict.Verdict == api.Warning
	}) {
		t.Errorf("the checks of edge lack it: %+v", report.Checks)
	}
	h, err := w.Edge.Gateway.History(w.ctx, api.HistoryRequest{Peers: []string{"cloud"}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(h.Peers[0].Events, func(e api.HistoryEvent) bool { return e.Code == code && e.Check == api.ServiceAPIServer }) {
		t.Errorf("the history of edge lacks it: %+v", h.Peers[0].Events)
	}

	// A change of the peer may have fixed it, so it is forgotten, at both ends.
	if err := w.Edge.Gateway.PeerAllow(w.ctx, "cloud", api.PeerAllowRequest{Allow: []string{api.ServiceAuth}}); err != nil {
		t.Fatal(err)
	}
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
	w.awaitPeer(w.Cloud, "edge", func(p api.PeerStatus) string {
		if v := p.Reachability.Inbound.APIServer; v.Verdict != api.OK {
			return "cloud shows " + string(v.Verdict) + " " + v.Code + ": " + v.Cause
		}
		return ""
	})
}
