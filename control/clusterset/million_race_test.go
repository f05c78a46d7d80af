//go:build race

package clusterset

// offered is how many entries a hostile catalogue has, fewer with the race detector.
const offered = 30_000
