//go:build race

package clusterset

// offered is the number of entries of a hostile catalogue, smaller with the race detector.
const offered = 30_000
