//go:build !race

package relay_test

// bulk is how many bytes are sent through a relay
const bulk = 100 << 20
