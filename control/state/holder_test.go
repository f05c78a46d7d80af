package state

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// An identity name belongs to its key as long as one of its identities is valid, even if the peer
// is removed.
func TestAnIdentityNameIsHeldUntilTheLastOneEnds(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	s := mustOpen(t, dir)
	note := func(k byte, name, serial string, end time.Duration) {
		t.Helper()
		if err := s.RecordIssued(peer.PublicKey{k}, name, serial, now, now.Add(end)); err != nil {
			t.Fatal(err)
		}
	}
	note(1, "edge", "a", 3*time.Hour)
	for range maxIssued { // those that end first are dropped first
		note(1, "edge", time.Now().String(), time.Hour)
	}
	note(1, "edge", "b", 2*time.Hour)
	note(2, "", "c", time.Hour) // as recorded by an older version
	for name, k := range map[string]byte{"edge": 1, "paris": 2} {
		if err := s.Forget(name, peer.PublicKey{k}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir)
	holds := func(name string, k byte, at time.Duration, want byte, until time.Duration) {
		t.Helper()
		got, end, ok := s.IdentityHolder(name, peer.PublicKey{k}, now.Add(at))
		if ok != (want != 0) || ok && (got != (peer.PublicKey{want}) || !end.Equal(now.Add(until))) {
			t.Errorf("%s for key %d after %v: held by %v until %v (%v)", name, k, at, got, end, ok)
		}
	}
	holds("edge", 9, 0, 1, 3*time.Hour)
	holds("edge", 9, 3*time.Hour-time.Second, 1, 3*time.Hour)
	holds("edge", 9, 3*time.Hour, 0, 0)
	holds("edge", 1, 0, 0, 0) // its own
	holds("berlin", 9, 0, 0, 0)
	holds("paris", 9, 0, 2, time.Hour)

	inherit := func(old, next byte) {
		t.Helper()
		for range 2 { // as when a change is repeated
			if err := s.Inherit(peer.PublicKey{old}, peer.PublicKey{next}, "edge"); err != nil {
				t.Fatal(err)
			}
		}
	}
	inherit(1, 3)
	holds("edge", 3, 0, 0, 0)
	holds("edge", 1, 0, 3, 3*time.Hour)

	// What was being issued to the old key is held by the next as well, or the peer would be refused.
	note(1, "edge", "d", 4*time.Hour)
	holds("edge", 3, 0, 0, 0)
	holds("edge", 1, 0, 3, 4*time.Hour)
	note(1, "rome", "e", time.Hour) // another peer, later, by a key that is no longer edge's
	holds("rome", 9, 0, 1, time.Hour)
	inherit(3, 1) // back
	note(1, "edge", "f", 5*time.Hour)
	note(3, "edge", "g", 6*time.Hour)
	holds("edge", 1, 0, 0, 0)
	holds("edge", 3, 0, 1, 6*time.Hour)
}

// A removed peer's key may be another peer's, if both are in one hand. However many identities it
// gets as that, the name that it had before is not free earlier.
func TestAnIdentityNameIsHeldWhateverItsKeyGetsUnderAnother(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	s := mustOpen(t, t.TempDir())
	removed, other := peer.PublicKey{1}, peer.PublicKey{2}
	if err := errors.Join(s.RecordIssued(removed, "edge", "a", now, now.Add(time.Hour)), s.Forget("edge", removed), s.Inherit(other, removed, "lab")); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxIssued {
		if err := s.RecordIssued(removed, "lab", fmt.Sprint(i), now, now.Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for name, until := range map[string]time.Duration{"edge": time.Hour, "lab": 2 * time.Hour} {
		if k, end, ok := s.IdentityHolder(name, peer.PublicKey{9}, now); !ok || k != removed || !end.Equal(now.Add(until)) {
			t.Errorf("%s is held by %v until %v (%v)", name, k, end, ok)
		}
	}
	if n, _ := s.LastIssued(removed, now); n != 1+maxIssued {
		t.Errorf("%d are stored, want %d", n, 1+maxIssued)
	}
}

// What is issued to a peer's old key is recorded for the next one, but not when the old key is a
// peer's again.
func TestASuccessionEnds(t *testing.T) {
	const old, next = 1, 2
	for name, c := range map[string]struct {
		then func(t *testing.T, s *Store)
		want byte // holds what is issued to the old key then
	}{
		"at once": {func(*testing.T, *Store) {}, next},
		"the old key is forgotten, as the last step": {func(t *testing.T, s *Store) {
			if err := s.Forget("", peer.PublicKey{old}); err != nil {
				t.Error(err)
			}
		}, next},
		"the peer is removed": {func(t *testing.T, s *Store) {
			if err := s.Forget("edge", peer.PublicKey{next}); err != nil {
				t.Error(err)
			}
			s.successions.Range(func(any, any) bool { t.Error("the succession stays in memory"); return false })
		}, old},
		"much later": {func(*testing.T, *Store) { time.Sleep(maxIssuance) }, old},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := mustOpen(t, t.TempDir())
				if err := s.Inherit(peer.PublicKey{old}, peer.PublicKey{next}, "edge"); err != nil {
					t.Fatal(err)
				}
				c.then(t, s)
				now := time.Now()
				if err := s.RecordIssued(peer.PublicKey{old}, "edge", "a", now, now.Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
				if got, _, ok := s.IdentityHolder("edge", peer.PublicKey{9}, now); !ok || got != (peer.PublicKey{c.want}) {
					t.Errorf("held by %v (%v), want key %d", got, ok, c.want)
				}
			})
		})
	}
}

// A succession that could not be stored leaves the one before in force.
func TestAFailedSuccessionChangesNothing(t *testing.T) {
	var failing bool
	d := osDisk()
	d.write = func(f *os.File, b []byte) error {
		if failing {
			return syscall.ENOSPC
		}
		_, err := f.Write(b)
		return err
	}
	s, err := open(t.TempDir(), nil, d)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Now()
	note := func(k byte, name, serial string) {
		t.Helper()
		if err := s.RecordIssued(peer.PublicKey{k}, name, serial, now, now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(name string, want byte) {
		t.Helper()
		if got, _, ok := s.IdentityHolder(name, peer.PublicKey{99}, now); !ok || got != (peer.PublicKey{want}) {
			t.Errorf("%s is held by %v (%v), want key %d", name, got, ok, want)
		}
	}
	if err := s.Inherit(peer.PublicKey{1}, peer.PublicKey{2}, "edge"); err != nil {
		t.Fatal(err)
	}
	failing = true
	for name, old := range map[string]byte{"edge": 2, "paris": 4} {
		if err := s.Inherit(peer.PublicKey{old}, peer.PublicKey{old + 1}, name); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v, want %v", err, syscall.ENOSPC)
		}
	}
	failing = false
	note(1, "edge", "a")
	holds("edge", 2)
	note(4, "paris", "b")
	holds("paris", 4)
}

// A configured peer with another key is the same peer, also across a restart, unless it was
// removed in between. Peers may swap keys.
func TestAConfiguredPeersNextKeyInherits(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	s := mustOpen(t, dir)
	type keys = map[string]byte
	configure := func(all keys) {
		t.Helper()
		list := map[string]peer.PublicKey{}
		for name, k := range all {
			list[name] = peer.PublicKey{k}
		}
		if err := s.SetConfigured(list); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(name string, want byte) {
		t.Helper()
		if got, _, ok := s.IdentityHolder(name, peer.PublicKey{99}, now); !ok || got != (peer.PublicKey{want}) {
			t.Errorf("%s is held by %v (%v), want key %d", name, got, ok, want)
		}
	}
	configure(keys{"edge": 1, "paris": 2})
	for k, name := range map[byte]string{1: "edge", 2: "paris"} {
		if err := s.RecordIssued(peer.PublicKey{k}, name, name, now, now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	configure(keys{"edge": 2, "paris": 1})
	holds("edge", 2)
	holds("paris", 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir)
	configure(keys{"edge": 3, "paris": 1})
	holds("edge", 3)
	configure(keys{"paris": 1})
	if k, ok := s.Configured("edge"); ok {
		t.Errorf("edge was removed, and has %s", k)
	}
	configure(keys{"edge": 4, "paris": 1})
	holds("edge", 3)
}
