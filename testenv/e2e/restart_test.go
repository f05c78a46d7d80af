//go:build linux && e2e

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// resumeWithin is how long after a gateway's start both directions must carry requests again.
const resumeWithin = 5 * time.Second

// TestSessionsResumeAfterARestart restarts each gateway, gracefully and not, idle and under load,
// without any action at the other one. It does not run in parallel, since it measures seconds.
func TestSessionsResumeAfterARestart(t *testing.T) {
	for _, who := range []string{"edge, which dials", "cloud, which waits"} {
		t.Run(who, func(t *testing.T) {
			onTime(t, func(late lateness) {
				p := newPeers(t, newWorld(t))
				restarted, other := p.edge, p.cloud
				if strings.HasPrefix(who, "cloud") {
					restarted, other = p.cloud, p.edge
				}
				untouched := other.proc.PID()
				for _, c := range []struct {
					name string
					sig  syscall.Signal
					busy bool
				}{
					{"SIGTERM, idle", syscall.SIGTERM, false},
					{"SIGTERM, busy", syscall.SIGTERM, true},
					{"SIGKILL, idle", syscall.SIGKILL, false},
					{"SIGKILL, busy", syscall.SIGKILL, true},
				} {
					late(c.name+": until both directions work again", p.restart(t, restarted, c.name, c.sig, c.busy), resumeWithin)
				}
				select {
				case <-other.proc.Done():
					t.Errorf("gateway %s (process %d) ended", other.name, untouched)
				default:
				}
			})
		})
	}
}

// restart restarts a gateway and returns how long both directions take to resume.
func (p *pair) restart(t *testing.T, g *gateway, name string, sig syscall.Signal, busy bool) time.Duration {
	t.Helper()
	var load *download
	if busy {
		load = startDownload(t, p.world.edge, blobLocal, 0)
	}
	g.stop(sig)
	if load != nil {
		// A user whose gateway is gone is not notified; the other's user is, later. Either way
		// this transfer is over.
		load.stop()
	}
	start := time.Now()
	g.launch()
	p.checkBlob(p.edge, "cloud")
	toCloud := time.Since(start)
	p.checkBlob(p.cloud, "edge")
	toEdge := time.Since(start)
	t.Logf("%s: edge reaches cloud after %v, cloud reaches edge after %v", name, toCloud.Round(time.Millisecond), toEdge.Round(time.Millisecond))
	g.waitReady()
	return toEdge
}
