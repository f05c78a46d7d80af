package state

import (
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestRemovedPeersAreRememberedAndBounded(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	key := func(n int) peer.PublicKey { return peer.PublicKey{byte(n), byte(n >> 8), 1} }
	for n := range maxRemoved + 1 {
		if err := s.NoteRemoved(key(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Forget("edge", key(5)); err != nil {
		t.Fatal(err)
	}
	if err := s.WantAgain(key(6)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir)
	for n, want := range map[int]bool{0: false, 1: true, 5: true, 6: false, maxRemoved: true, maxRemoved + 1: false} {
		if got := s.WasRemoved(key(n)); got != want {
			t.Errorf("after a restart key %d was removed: %v, want %v", n, got, want)
		}
	}
}
