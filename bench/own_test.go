package bench

import (
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/bench/load"
)

// TestOwnSubjectsCarryTraffic makes a very short run of every subject of this process: each must
// connect, report its measurement and leave nothing running.
func TestOwnSubjectsCarryTraffic(t *testing.T) {
	own := Own()
	for name := range ownBinary() {
		delete(own.Subjects, name) // they need the postern program
	}
	if _, err := backendAddress(); err != nil {
		for name := range ownGateways() {
			delete(own.Subjects, name)
		}
	}
	for _, name := range append(slices.Sorted(maps.Keys(own.Subjects)), slices.Sorted(maps.Keys(own.Alone))...) {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			relay := startRelay(t)
			defer relay.stop()
			r, err := own.Run(t.Context(), load.Spec{
				Subject: name, Streams: 2, Relay: relay.address, Duration: 20 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			var sum uint64
			for _, n := range r.StreamBytes {
				sum += n
			}
			if sum != r.Bytes || r.Seconds < 0.02 {
				t.Errorf("got %d bytes, %d over the streams, in %v s; want equal sums over at least 0.02 s", r.Bytes, sum, r.Seconds)
			}
		})
	}
}

func TestOwnSubjectsCarryDatagrams(t *testing.T) {
	for _, name := range []string{Postern, Loopback} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			r, err := Own().Run(t.Context(), load.Spec{
				Subject: name, Load: load.LoadDatagrams, Size: 1000, Rate: 100, Duration: 200 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Values[load.UnitLost] == 1 || r.Values[load.UnitSent] == 0 {
				t.Errorf("got %v, want packets sent and received", r.Values)
			}
		})
	}
}

// TestPosternTakesAnMTU checks that the MTU of a scenario takes effect.
func TestPosternTakesAnMTU(t *testing.T) {
	for _, mtu := range []int{1280, 8920} {
		a, b, err := newEnds(sizes{mtu: mtu})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []*end{a, b} {
			if got, err := e.stack.Device().MTU(); err != nil || got != mtu {
				t.Errorf("got %d, %v; want %d", got, err, mtu)
			}
			if err := e.close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestWorkloadsBesideTheControlPlane checks that the workloads run during the measurement and are
// reported.
func TestWorkloadsBesideTheControlPlane(t *testing.T) {
	if _, err := backendAddress(); err != nil {
		t.Skip(err)
	}
	defer goleak.VerifyNone(t)
	spec := load.Spec{
		Subject: GatewaysControl, Load: load.LoadRequests, Size: 1000, Rate: 50,
		Workloads: &load.Workloads{Streams: 2, Connections: 40},
	}
	// On a busy machine a longer window may be needed for each workload to transfer something.
	for spec.Duration = 300 * time.Millisecond; ; spec.Duration *= 4 {
		r, err := Own().Run(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if r.Values[load.UnitRequests] > 0 && r.Values[load.UnitBulk] > 0 && r.Values[load.UnitConnections] > 0 {
			return
		}
		if spec.Duration > time.Minute {
			t.Fatalf("in %s: %v", spec.Duration, r.Values)
		}
	}
}
