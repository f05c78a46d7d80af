package main

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestANamespaceHasOnlyItsLoopback(t *testing.T) {
	before := interfaces(t)
	n, err := newNamespace()
	if err != nil {
		if os.Geteuid() == 0 || !strings.Contains(err.Error(), "needs root") {
			t.Fatal(err)
		}
		return // as it should be
	}
	var inside []string
	n.in(func() { inside = interfaces(t) })
	if !slices.Equal(inside, []string{"lo"}) {
		t.Errorf("interfaces %q, want lo alone", inside)
	}
	if err := n.close(); err != nil {
		t.Error(err)
	}
	if after := interfaces(t); !slices.Equal(before, after) {
		t.Errorf("interfaces outside: %q, want %q as before", after, before)
	}
}

// interfaces returns those that the thread sees.
func interfaces(t *testing.T) (names []string) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Error(err)
	}
	for _, one := range all {
		names = append(names, one.Name)
	}
	return names
}
