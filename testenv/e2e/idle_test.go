//go:build linux && e2e

package e2e

import (
	"testing"
	"time"
)

const (
	idleFor = 40 * time.Second
	// idleMemory bounds RssAnon of a gateway with one peer, in bytes; idleCPU its share
	// of one core.
	idleMemory = 20 << 20
	idleCPU    = 0.005
)

// TestIdleGatewayIsCheap measures both gateways of a peering that nobody uses, after a
// little use. Where huge pages are on for all they hold as little.
func TestIdleGatewayIsCheap(t *testing.T) {
	p := newPeers(t, newWorld(t))
	gateways := []*gateway{p.cloud, p.edge}
	<-time.After(5 * time.Second) // what follows enrolment is no idleness yet
	start := time.Now()
	var before []time.Duration
	for _, g := range gateways {
		before = append(before, cpuTime(t, g.proc.PID()))
	}
	<-time.After(idleFor)
	for i, g := range gateways {
		pid := g.proc.PID()
		share := float64(cpuTime(t, pid)-before[i]) / float64(time.Since(start))
		memory := rssAnon(t, pid)
		t.Logf("%s: %.1f MB of RssAnon, %.2f %% of a core", g.name, mb(memory), 100*share)
		if !smallPages(t, pid) {
			t.Errorf("%s takes huge pages where the kernel offers them", g.name)
		}
		if memory > idleMemory {
			t.Errorf("%s holds %.1f MB of anonymous memory, want at most %.0f", g.name, mb(memory), mb(idleMemory))
		}
		if share > idleCPU {
			t.Errorf("%s uses %.2f %% of a core, want at most %.2f", g.name, 100*share, 100*idleCPU)
		}
		g.waitConnected(map[string]string{"cloud": "edge", "edge": "cloud"}[g.name])
	}
}
