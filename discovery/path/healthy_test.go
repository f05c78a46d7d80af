package path_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
)

// healthyVariable sets for how many hours of virtual time healthy pairs run; see `make
// test-healthy`.
const healthyVariable = "POSTERN_HEALTHY_HOURS"

// Healthy pairs stay connected over each pair of NATs, with 2 % loss each way and 100 ms of
// jitter. A path is never lost, and never unanswered for 5 s, after which a peer is reported as
// silent.
func TestHealthyPairsAreNotLost(t *testing.T) {
	const silence = 5 * time.Second
	healthyFor := 21 * 10 * time.Minute
	if n, err := strconv.Atoi(os.Getenv(healthyVariable)); err == nil {
		healthyFor = time.Duration(n) * time.Hour
	}
	for i := range kinds {
		for j := i; j < len(kinds); j++ {
			t.Run(kinds[i].name+" and "+kinds[j].name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, uint64(10*i+j), -1, func(w *world) {
					at, other := siteOf(kinds[i], 1), siteOf(kinds[j], 2)
					at.link.Loss, at.link.Jitter = 0.02, 100*time.Millisecond
					a, b := w.gateway("a", at, true), w.gateway("b", other, false)
					w.meet(a, b)
					if _, met := w.until(time.Minute, func() bool { return a.kind() != path.KindNone && b.kind() != path.KindNone }); !met {
						w.t.Fatalf("they do not meet\n%s", explain(a, b))
					}
					time.Sleep(time.Minute) // the path may still change meanwhile
					wrong := map[string]int{}
					for end := time.Now().Add(healthyFor / 21); time.Now().Before(end); time.Sleep(time.Second) {
						for _, g := range []*gateway{a, b} {
							switch s, _ := g.status(); {
							case s.Kind == path.KindNone:
								wrong[fmt.Sprintf("%s has no path: %s", g.name, s.Reason)]++
							case !s.Unanswered.IsZero() && time.Since(s.Unanswered) >= silence:
								wrong[g.name+" has no answer"]++
							}
						}
					}
					if len(wrong) > 0 {
						w.t.Errorf("seconds of %s: %v\n%s", healthyFor/21, wrong, explain(a, b))
					}
				})
			})
		}
	}
}
