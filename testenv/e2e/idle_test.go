//go:build linux && e2e

package e2e

import (
	"testing"
	"time"
)

const (
	idleFor = 40 * time.Second
	// idleMemory bounds RssAnon of a gateway with one peer, in bytes.
	idleMemory = 20 << 20
	// idleWakes bounds how often a second a thread of it begins to run. What that costs is
	// the machine's: on a quiet one 0.1 % of a core (measured), on one whose hypervisor takes
	// its cores away several times that. idleCPU, a share of one core, is what only a gateway
	// that spins exceeds.
	idleWakes = 100
	idleCPU   = 0.05
)

// TestIdleGatewayIsCheap measures both gateways of a peering that nobody uses, after a
// little use. Where huge pages are on for all they hold as little.
func TestIdleGatewayIsCheap(t *testing.T) {
	t.Parallel()
	p := newPeers(t, newWorld(t))
	gateways := []*gateway{p.cloud, p.edge}
	<-time.After(5 * time.Second) // what follows enrolment is no idleness yet
	start := time.Now()
	var cpu []time.Duration
	var wakes []int
	for _, g := range gateways {
		cpu = append(cpu, cpuTime(t, g.proc.PID()))
		wakes = append(wakes, contextSwitches(t, g.proc.PID()))
	}
	<-time.After(idleFor)
	for i, g := range gateways {
		pid := g.proc.PID()
		elapsed := time.Since(start)
		share := float64(cpuTime(t, pid)-cpu[i]) / float64(elapsed)
		wakesPerSecond := float64(contextSwitches(t, pid)-wakes[i]) / elapsed.Seconds()
		memory := rssAnon(t, pid)
		t.Logf("%s: %.1f MB of RssAnon, %.2f %% of a core, woken %.1f times a second", g.name, mb(memory), 100*share, wakesPerSecond)
		if !smallPages(t, pid) {
			t.Errorf("%s takes huge pages where the kernel offers them", g.name)
		}
		if memory > idleMemory {
			t.Errorf("%s holds %.1f MB of anonymous memory, want at most %.0f", g.name, mb(memory), mb(idleMemory))
		}
		if wakesPerSecond > idleWakes {
			t.Errorf("%s is woken %.1f times a second, want at most %d", g.name, wakesPerSecond, idleWakes)
		}
		if share > idleCPU {
			t.Errorf("%s uses %.2f %% of a core, want at most %.2f", g.name, 100*share, 100*idleCPU)
		}
		g.waitConnected(map[string]string{"cloud": "edge", "edge": "cloud"}[g.name])
	}
}
