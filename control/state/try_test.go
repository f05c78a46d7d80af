package state

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Files that are deleted while the gateway runs are restored for the next start.
func TestWhatIsRemovedIsWrittenAgain(t *testing.T) {
	dir := two(t)
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := s.PrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	if restored, err := s.Try(); err != nil || restored != nil {
		t.Errorf("nothing is gone: restored %v (%v)", restored, err)
	}
	want := []string{filepath.Join(dir, keyFile), filepath.Join(dir, "peers.json")}
	for _, file := range want {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if restored, err := s.Try(); err != nil || !slices.Equal(restored, want) {
		t.Errorf("restored %v (%v), want %v", restored, err, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if k, err := again.PrivateKey(); err != nil || k != key || again.Peers().Len() != 2 {
		t.Errorf("after a restart there are %d peers, want 2; the key is the same: %v (%v)", again.Peers().Len(), k == key, err)
	}
}

func TestTryTellsWhyNothingCanBeWritten(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, s *Store)
		want  error
		text  string
	}{
		{"full", func(_ *testing.T, s *Store) {
			s.peers.disk.write = func(*os.File, []byte) error { return syscall.ENOSPC }
		}, syscall.ENOSPC, "free some space"},
		{"gone", func(t *testing.T, s *Store) {
			if err := os.RemoveAll(s.Dir()); err != nil {
				t.Fatal(err)
			}
		}, syscall.ENOENT, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Open(two(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c.spoil(t, s)
			if restored, err := s.Try(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || restored != nil {
				t.Errorf("got %v, restored %v; want %v with %q", err, restored, c.want, c.text)
			}
		})
	}
}
