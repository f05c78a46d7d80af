//go:build race

package tunnel

// scanned is how many datagrams a scanner sends; `make test-long` has all
const scanned = 8_000
