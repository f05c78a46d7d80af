package gateway_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/gateway"
)

// What was found of a peer while it was restarted goes with its next handshake, in whatever an
// operator looks at: the next round of checks is an hour away.
func TestAShortRestartLeavesNoVerdict(t *testing.T) {
	w := newWorld(t, func(_ string, o *gateway.Options) { o.CheckInterval, o.CheckRetry = time.Hour, time.Hour })
	w.peer()
	w.inbound(w.Edge, "cloud", "any, ok, ok")
	w.stop(w.Cloud)
	w.await("a check says that cloud is gone", func() string {
		w.look(w.Edge, "cloud")
		p, _ := w.status(w.Edge, "cloud")
		if v := p.Reachability.Outbound.Gateway; v.Code != string(catalogue.NothingListens) {
			return "it says " + string(v.Verdict) + " " + v.Code + ": " + v.Cause
		}
		return ""
	})
	w.start(w.Cloud)
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		out := p.Reachability.Outbound
		for _, v := range []api.Verdict{out.Gateway, out.Auth, out.APIServer} {
			if v.Verdict == api.Warning || v.Code == string(catalogue.ProcessStarved) {
				w.look(w.Edge, "cloud") // this machine is busy
			}
			if v.Verdict != api.OK {
				return string(p.State) + ", and " + string(v.Verdict) + " " + v.Code + ": " + v.Cause
			}
		}
		return ""
	})
}
