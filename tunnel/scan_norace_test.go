//go:build !race

package tunnel

// scanned is how many datagrams a scanner sends
const scanned = 100_000
