//go:build !race

package clusterset

// offered is how many entries a hostile catalogue has.
const offered = 1_000_000
