//go:build linux && e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// removalDeadline is how long a removed peer's connections may live on.
const removalDeadline = 5 * time.Second

// TestNothingIsReachedWithoutAGrant grants edge less than it asks for. stock_test.go shows, with
// a stock peer, that cloud itself refuses a client that does not ask first.
func TestNothingIsReachedWithoutAGrant(t *testing.T) {
	p := newPair(t, newWorld(t))
	enrol(p.cloud, p.edge, []string{"--allow", "auth"}, []string{"--local", blobService + "=" + blobLocal})
	body, err := fetch(within(t, patience), p.world.edge, "http://"+blobLocal+"/")
	if err == nil {
		t.Errorf("edge reached a service that it was not granted: %q", body)
	}
	r := p.edge.postern(within(t, patience), "credential", "cloud")
	if r.code == 0 || r.stdout != "" {
		t.Errorf("edge was given a credential without the grant: exit code %d, %q", r.code, r.stdout)
	}
	// A grant takes effect at once, and so does its removal.
	p.cloud.must("peer", "allow", "edge", "auth,"+blobService)
	p.checkBlob(p.edge, "cloud")
	p.cloud.must("peer", "allow", "edge", "auth")
	ctx := within(t, patience)
	eventually(ctx, t, "the grant has ended", func() (bool, string) {
		got, err := fetch(ctx, p.world.edge, "http://"+blobLocal+"/")
		return err != nil, got
	})
}

func TestRemovingAPeerEndsItsFlows(t *testing.T) {
	w := newWorld(t)
	p := newPeers(t, w)
	inbound := startDownload(t, w.edge, blobLocal, 1<<20)   // edge uses cloud's service
	outbound := startDownload(t, w.cloud, blobLocal, 1<<20) // cloud uses edge's
	p.cloud.waitPeer("edge", "with flows", func(s api.PeerStatus) bool { return len(s.Flows) >= 2 })

	start := time.Now()
	p.cloud.must("peer", "remove", "edge", "--force")
	for name, d := range map[string]*download{"inbound": inbound, "outbound": outbound} {
		select {
		case <-d.done:
		case <-within(t, patience).Done():
			t.Fatalf("the %s flow of a removed peer still runs", name)
		}
	}
	late(t, "until the flows of a removed peer ended", time.Since(start), removalDeadline)
	if _, found := p.cloud.peer("edge"); found {
		t.Error("the removed peer is still in the status")
	}
	if got, err := fetch(within(t, patience), w.edge, "http://"+blobLocal+"/"); err == nil {
		t.Errorf("a removed peer still reaches the service: %q", got)
	}
	p.cloud.waitLog("audit", "remove", "edge")
}

// TestApprovalComesFirst uses a ticket whose joiner the inviter approves manually.
func TestApprovalComesFirst(t *testing.T) {
	p := newPair(t, newWorld(t))
	ticket := p.cloud.invite("--approve", "--allow", "auth,"+blobService)
	r := p.edge.postern(within(t, patience), "join", ticket, "--local", blobService+"="+blobLocal)
	if r.code != 0 && r.code != 1 {
		t.Errorf("join: exit code %d\n%s", r.code, r.stderr)
	}
	pending := p.cloud.waitPeer("edge", "pending", func(s api.PeerStatus) bool { return s.State == api.StatePending })
	if f := pending.ApprovalFingerprint; f == "" || !strings.Contains(r.stdout+r.stderr, f) {
		t.Errorf("cloud shows fingerprint %q, which join did not print:\n%s%s", f, r.stdout, r.stderr)
	}
	if got, err := fetch(within(t, patience), p.world.edge, "http://"+blobLocal+"/"); err == nil {
		t.Errorf("a peer that nobody approved reaches the service: %q", got)
	}
	p.cloud.refused(2, []string{pending.ApprovalFingerprint, "--fingerprint"}, "peer", "approve", "edge")
	p.cloud.refused(1, []string{pending.ApprovalFingerprint}, "peer", "approve", "edge", "--fingerprint", p.cloud.status().Gateway.PublicKey)
	p.cloud.must("peer", "approve", "edge", "--fingerprint", p.edge.status().Gateway.PublicKey)
	p.checkBlob(p.edge, "cloud")
}
