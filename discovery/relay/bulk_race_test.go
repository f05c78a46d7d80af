//go:build race

package relay_test

// bulk is how many bytes are sent through a relay; `make e2e` sends ten times that
const bulk = 10 << 20
