//go:build race

package relay_test

// bulk is what goes through a relay, in bytes; `make e2e` sends ten times that
const bulk = 10 << 20
