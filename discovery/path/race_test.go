//go:build race

package path_test

const raceDetector = true

// few returns how many of the runs to do under the race detector, which makes them ten times
// slower; `make test-long` does all.
func few(all uint64) uint64 { return max(all/4, 2) }
