//go:build !race

package path_test

const raceDetector = false

// few is all of so many runs.
func few(all uint64) uint64 { return all }
