package bench

import (
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/bench/load"
)

// TestOwnSubjectsCarryTraffic makes the shortest of runs of every subject in this
// module: each must connect, say what it measured, and leave nothing behind.
func TestOwnSubjectsCarryTraffic(t *testing.T) {
	own := Own()
	for _, name := range append(slices.Sorted(maps.Keys(own.Subjects)), slices.Sorted(maps.Keys(own.Alone))...) {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			relay := startRelay(t)
			defer relay.stop()
			r, err := own.Run(t.Context(), load.Spec{
				Subject: name, Streams: 2, Relay: relay.address, Duration: 200 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			var sum uint64
			for _, n := range r.StreamBytes {
				sum += n
			}
			if sum != r.Bytes || r.Seconds < 0.2 {
				t.Errorf("got %d bytes, %d over the streams, in %v s; want equal sums over at least 0.2 s", r.Bytes, sum, r.Seconds)
			}
		})
	}
}
