//go:build race

package sender

import "time"

// The race detector finds nothing without goroutines and makes these tests ten times slower. So
// they use slower paths, and two cells stand for all.
const (
	lossyRate       = 25e6
	coexistenceRuns = 1
	longerRuns      = 1
	unlistedPaths   = 5
)

var coexistenceQueues = []time.Duration{10 * ms, 105 * ms}
