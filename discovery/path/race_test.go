//go:build race

package path_test

const raceDetector = true
