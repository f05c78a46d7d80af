//go:build !race

package path_test

const raceDetector = false

// few returns all runs.
func few(all uint64) uint64 { return all }
