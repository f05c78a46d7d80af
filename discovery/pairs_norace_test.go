//go:build !race

package discovery_test

// reversed says which of a pair invites.
var reversed = []bool{false, true}
