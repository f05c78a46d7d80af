//go:build !race

package clusterset

// offered is the number of entries of a hostile catalogue.
const offered = 1_000_000
