package gateway_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// What was found while a peer was restarted does not stay when it is back: a handshake shows that.
func TestAShortRestartLeavesNoVerdict(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.inbound(w.Edge, "cloud", "any, ok, ok")
	w.stop(w.Cloud)
	if _, err := w.Edge.Gateway.Check(w.ctx, api.CheckRequest{Peer: "cloud"}); err != nil {
		t.Fatal(err)
	}
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string { // which a process that is starved does not say at once
		if v := p.Reachability.Outbound.Gateway; v.Verdict != api.Error {
			return "while it is down the verdict is " + string(v.Verdict)
		}
		return ""
	})
	w.start(w.Cloud)
	back := time.Now()
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if v := p.Reachability.Outbound.Gateway; v.Verdict != api.OK {
			return "edge finds cloud " + string(v.Verdict) + " " + v.Code + ": " + v.Cause
		}
		return ""
	})
	if took := time.Since(back); took > resumption/2 {
		t.Errorf("the verdict stayed for %v", took)
	}
}
