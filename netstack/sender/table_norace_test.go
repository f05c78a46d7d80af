//go:build !race

package sender

import "time"

// lossyRate is the rate of lossy paths, in bits per second.
const lossyRate = 50e6

// coexistenceRuns is how often each cell of TestCoexistence is run, each time with another seed.
const coexistenceRuns = 3

// longerRuns is the same for TestLongerPathThatLoses.
const longerRuns = 5

// unlistedPaths is how many paths TestUnlistedPaths draws.
const unlistedPaths = 20

var coexistenceQueues = []time.Duration{4 * ms, 10 * ms, 20 * ms, 40 * ms, 105 * ms, 200 * ms, 400 * ms}
