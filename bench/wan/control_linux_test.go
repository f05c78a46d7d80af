package wan

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/load"
)

// Two gateways only reach each other over the path, and the workloads run during the measurement.
func TestRequestsBesideWorkloadsOverAPath(t *testing.T) {
	const rtt = 4 * time.Millisecond
	f := serve(t, Path{RTT: rtt, Rate: controlRate}, 1)
	spec := bench.ControlSpec(true)
	spec.Subject, spec.Via = bench.GatewaysControl, f.at[0]
	// On a busy machine a longer window may be needed for each workload to transfer something.
	for spec.Duration = 2 * time.Second; ; spec.Duration *= 2 {
		r, err := bench.Own().Run(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if r.Values[load.UnitBulk] > 0 && r.Values[load.UnitConnections] > 0 && r.Values[load.UnitMedian] > 0 {
			if took := r.Values[load.UnitMedian]; took < rtt.Seconds() {
				t.Errorf("a request took %g s, less than the path's delay", took)
			}
			break
		}
		if spec.Duration > time.Minute {
			t.Fatalf("in %s: %v", spec.Duration, r.Values)
		}
	}
	if n := f.end().sum().Forwarded; n == 0 {
		t.Error("nothing went over the path")
	}
}
