//go:build race

package discovery_test

// reversed is which side of a pair invites; `make test-long` tests both.
var reversed = []bool{false}
