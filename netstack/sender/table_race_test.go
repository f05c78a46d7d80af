//go:build race

package sender

import "time"

// Under the race detector, which finds nothing in a machine without goroutines and makes it
// ten times slower, slower paths are taken, and two cells stand for all.
const (
	lossyRate       = 25e6
	coexistenceRuns = 1
	longerRuns      = 1
)

var coexistenceQueues = []time.Duration{10 * ms, 105 * ms}
