package sender

import (
	"go/build"
	"strings"
	"testing"
)

// The machines know neither gVisor nor anything else that isn't Go's own.
func TestImportsOnlyTheStandardLibrary(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range p.Imports {
		if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
			t.Errorf("imports %s", path)
		}
	}
}
