package state

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestBootNumbersOnlyRise(t *testing.T) {
	dir := t.TempDir()
	boot := func(now time.Time) uint64 {
		t.Helper()
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		n, err := s.Boot(now)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	last := boot(now)
	for name, at := range map[string]time.Time{
		"the same millisecond": now, "a clock set back": now.Add(-24 * time.Hour), "a clock never set": time.Unix(3, 0),
		"a clock before 1970": time.Unix(-5, 0), "a later start": now.Add(time.Hour),
	} {
		n := boot(at)
		if n <= last {
			t.Errorf("%s: got %d after %d, want a greater one", name, n, last)
		}
		last = n
	}
	for _, name := range []string{"boots.json", "boots.json.previous"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if n := boot(now.Add(48 * time.Hour)); n <= last {
		t.Errorf("with the file lost: got %d after %d, want a greater one", n, last)
	}
}
