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
	// idleWakes bounds how often per second its threads are scheduled. The cost of that depends
	// on the machine: 0.1 % of a core on a quiet one (measured), several times that if a
	// hypervisor takes its cores away. idleCPU, a share of one core, is exceeded only by a
	// gateway that spins.
	idleWakes = 100
	idleCPU   = 0.05
)

// TestIdleGatewayIsCheap measures both gateways of an idle peering, after a little use. Their
// memory is as small if huge pages are enabled for everything.
func TestIdleGatewayIsCheap(t *testing.T) {
	t.Parallel()
	p := newPeers(t, newWorld(t))
	gateways := []*gateway{p.cloud, p.edge}
	<-time.After(5 * time.Second) // the gateways are not yet idle right after enrolment
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
