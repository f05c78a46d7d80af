package gateway_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
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
		case v.Verdict != api.Error || v.Code == string(catalogue.Unanswered):
			return "the verdict is " + string(v.Verdict) + " " + v.Code + ": " + v.Cause
		}
		return ""
	})
	v := p.Reachability.Outbound.Gateway
	if v.Code != string(catalogue.NothingListens) || !strings.Contains(v.Cause, "says that nothing listens") ||
		!strings.Contains(v.Fix, "at cloud start the gateway") {
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
