package gateway_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// A peer that is switched off is called gone as soon as the path finder knows, while its
// last session is still young.
func TestAPeerThatIsGoneIsSaidToBeGone(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.stop(w.Cloud)
	p := w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		switch v := p.Reachability.Outbound.Gateway; {
		case p.Path.Kind != api.PathNone:
			return "a path is still shown"
		case v.Verdict != api.Error || v.Code == string(catalogue.PingLost):
			return "the verdict is " + string(v.Verdict) + " " + v.Code + ": " + v.Cause
		}
		return ""
	})
	v := p.Reachability.Outbound.Gateway
	if v.Code != string(catalogue.HandshakeStale) || !strings.Contains(v.Cause, "no path to cloud has worked for") ||
		!strings.Contains(v.Cause, "the last path, ") || !strings.Contains(v.Fix, "`postern check` at cloud") {
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
