package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A disk with errors becomes read-only, and the machine is restarted.
func TestAReadOnlyDirectoryOpens(t *testing.T) {
	dir := t.TempDir()
	switch err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m,mode=700"); {
	case errors.Is(err, syscall.EPERM):
		t.Skip("only root may mount")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := mustOpen(t, dir)
	put(t, s, edge())
	before, err := s.Boot(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	if err := syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir)
	if n := s.Peers().Len(); n != 1 {
		t.Errorf("%d peers, want 1", n)
	}
	if next, err := s.Boot(time.Now()); !errors.Is(err, syscall.EROFS) || next <= before {
		t.Errorf("boot %d after %d, %v; want a later one and %v", next, before, err, syscall.EROFS)
	}
	if _, err := Open(dir, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("a second gateway: got %v, want %v", err, ErrInUse)
	}
	mustClose(t, s)
}

func TestAPipeIsNoStateFile(t *testing.T) {
	dir := two(t)
	file := filepath.Join(dir, "observed.json")
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, nil); err == nil || !strings.Contains(err.Error(), "regular file") || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want that %s is not a regular file", err, file)
	}
}
