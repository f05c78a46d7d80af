//go:build linux && e2e

package kube

import (
	"fmt"
	"testing"
)

// testIncarnation: the deletion of an account is noticed, and a new account has a different
// incarnation.
func testIncarnation(t *testing.T, w *world) {
	ns := w.namespace(t, "incarnation")
	s := w.issuer(t, w.config(t, "", ""), ns)
	is := func(what, want string) {
		t.Helper()
		eventually(t, what, func() (bool, string) {
			id, known := s.Incarnation(edge)
			return known && id == want, fmt.Sprintf("%q, known %v; want %q", id, known, want)
		})
	}
	is("there is no account yet", "")
	s.issueTo(t, edge)
	name := accountPrefix + edge.Name
	first := w.uid(t, ns, name)
	is("the account is seen", first)
	w.kubectl(t, "", "delete", "serviceaccount", "-n", ns, name)
	is("it is seen to be gone", "")
	s.issueTo(t, edge)
	second := w.uid(t, ns, name)
	if second == first {
		t.Fatalf("the account is still %s", first)
	}
	is("another one is seen", second)
	// An earlier peer's account with the same name does not count.
	other := edge
	other.PublicKey[0] ^= 0xff
	if id, known := s.Incarnation(other); id != "" || !known {
		t.Errorf("a peer with another key has account %q, known %v; want none", id, known)
	}
}
