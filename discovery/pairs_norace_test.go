//go:build !race

package discovery_test

// reversed is which side of a pair invites.
var reversed = []bool{false, true}
