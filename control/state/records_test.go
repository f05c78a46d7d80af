package state

import (
	"fmt"
	"slices"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

// What is stored of a peer's records stays while it is found, however many others there are.
func TestManyRecordsDisplaceNone(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	defer mustClose(t, s)
	k := peer.PublicKey{1}
	found := func(records ...string) []string {
		t.Helper()
		if err := s.FoundAt(map[peer.PublicKey][]string{k: records}); err != nil {
			t.Fatal(err)
		}
		return s.Observed(k).Records
	}
	found("a", "b")
	many := []string{"a", "b"}
	for n := range 3 * maxRecords {
		many = append(many, fmt.Sprint("x", n))
	}
	first := found(many...)
	if len(first) != maxRecords || !slices.Contains(first, "a") || !slices.Contains(first, "b") {
		t.Errorf("got %q", first)
	}
	slices.Reverse(many)
	if again := found(many...); !slices.Equal(again, first) {
		t.Errorf("found again: got %q, want %q", again, first)
	}
	if moved := found("c"); len(moved) != maxRecords || moved[0] != "c" {
		t.Errorf("found elsewhere: got %q", moved)
	}
	if err := s.Observe(k, func(o *Observation) { o.Records = many }); err != nil { // another version's bound may be higher
		t.Fatal(err)
	}
	if most := found(append(many, "y")...); len(most) != len(many) {
		t.Errorf("more than the bound were stored: got %q", most)
	}
	found("z")
	if none := found(); len(none) != maxRecords {
		t.Errorf("not found any more: got %q", none)
	}
}
