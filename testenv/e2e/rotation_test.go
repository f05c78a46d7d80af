//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// TestKeysRotateWithoutLosingThePeer changes each gateway's key by command, across the NAT. The
// process continues, nobody joins again, and both directions work soon.
func TestKeysRotateWithoutLosingThePeer(t *testing.T) {
	p := newPeers(t, newWorld(t))
	for _, g := range []*gateway{p.cloud, p.edge} {
		process, old := g.proc.PID(), g.status().Gateway.PublicKey
		text := g.must("key", "rotate", "-o", "json")
		start := time.Now()
		var out api.KeyRotateResponse
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("key rotate at %s: %v\n%s", g.name, err, text)
		}
		if !out.Rotated || out.PublicKey == old || len(out.Told) != 1 {
			t.Errorf("key rotate at %s: %+v", g.name, out)
		}
		now := g.waitRekeyed(old)
		p.checkBlob(p.edge, "cloud")
		p.checkBlob(p.cloud, "edge")
		t.Logf("%s has another key: both directions work after %v", g.name, time.Since(start).Round(time.Millisecond))
		if now != out.PublicKey || g.proc.PID() != process {
			t.Errorf("%s: key %s in process %d, want %s in %d", g.name, now, g.proc.PID(), out.PublicKey, process)
		}
	}
	out := p.edge.must("peer", "show", "cloud")
	if key := p.cloud.status().Gateway.PublicKey; !strings.Contains(out, key) {
		t.Errorf("edge does not show cloud's key %s:\n%s", key, out)
	}
}
