//go:build race

package path_test

const raceDetector = true

// few is how many of so many runs there are under the race detector, which makes them ten
// times slower; `make test-long` has all.
func few(all uint64) uint64 { return max(all/4, 2) }
