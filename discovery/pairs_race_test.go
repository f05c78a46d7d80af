//go:build race

package discovery_test

// reversed says which of a pair invites; `make test-long` has either of them do so.
var reversed = []bool{false}
