package bench

import (
	"testing"

	"github.com/postern-dev/postern/bench/load"
)

func TestProgressInALine(t *testing.T) {
	p := Progress{Done: 2, Of: 14, Scenario: "tcp-1", Subject: "stock", metrics: []Metric{Throughput, Median, Cores, PeakMemory, PeakAnonymous}}
	for want, r := range map[string]Run{
		"[2/14] tcp-1 stock: 4.00 Gbit/s, 1.60 cores, 123 MB": {Result: &load.Result{
			Bytes: 1e9, Seconds: 2, UserSeconds: 3, SystemSeconds: 0.2, PeakRSS: 123e6, PeakAnon: 100e6,
		}},
		"[2/14] tcp-1 stock: failed: no result after 64s": {Error: "no result after 64s"},
	} {
		p.Run = r
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
