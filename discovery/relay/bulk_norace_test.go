//go:build !race

package relay_test

// bulk is what goes through a relay, in bytes
const bulk = 100 << 20
