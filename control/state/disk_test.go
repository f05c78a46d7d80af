package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestAFailingDiskChangesNothing(t *testing.T) {
	fail := func(err error) func(*disk) {
		return func(d *disk) {
			d.write = func(f *os.File, b []byte) error {
				_, _ = f.Write(b[:len(b)/2]) // a full disk takes a part
				return err
			}
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(*disk)
		want  error
		text  string
	}{
		{"full", fail(syscall.ENOSPC), syscall.ENOSPC, "free some space"},
		{"over quota", fail(syscall.EDQUOT), syscall.EDQUOT, "free some space"},
		{"read-only", fail(syscall.EROFS), syscall.EROFS, "mount it writable"},
		{"forbidden", fail(fs.ErrPermission), fs.ErrPermission, "must belong to the user"},
		{"sync fails", func(d *disk) { d.sync = func(*os.File) error { return syscall.EIO } }, syscall.EIO, ""},
		{"rename fails", func(d *disk) { d.rename = func(string, string) error { return syscall.EIO } }, syscall.EIO, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := two(t)
			broken := osDisk()
			s, err := open(dir, nil, broken)
			if err != nil {
				t.Fatal(err)
			}
			before := files(t, dir)
			c.spoil(&s.peers.disk)
			err = s.Update(func(p *Peers) error { return p.Put(Peer{Name: "tokyo", PublicKey: peer.PublicKey{8}}) })
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "peers.json") {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
			if n := s.Peers().Len(); n != 2 {
				t.Errorf("memory has %d peers, want the 2 of the disk", n)
			}
			after := files(t, dir)
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the directory changed (-before +after):\n%s", diff)
			}
			s.peers.disk = osDisk()
			put(t, s, Peer{Name: "tokyo", PublicKey: peer.PublicKey{8}})
			mustClose(t, s)
			if n := mustOpen(t, dir).Peers().Len(); n != 3 {
				t.Errorf("after the repair: %d peers, want 3", n)
			}
		})
	}
}

func TestAChangeThatIsNotDurableSaysSo(t *testing.T) {
	dir := two(t)
	s := mustOpen(t, dir)
	s.peers.disk.syncDir = func(string) error { return syscall.EIO }
	err := s.Update(func(p *Peers) error { p.Remove("edge"); return nil })
	if !errors.Is(err, ErrNotDurable) {
		t.Errorf("got %v, want %v", err, ErrNotDurable)
	}
	onDisk, err := s.peers.read("")
	if err != nil {
		t.Fatal(err)
	}
	if mem := s.Peers(); mem.Len() != onDisk.value.Len() {
		t.Errorf("memory has %d peers, the file %d", mem.Len(), onDisk.value.Len())
	}
}

func TestWithoutHardLinks(t *testing.T) {
	dir := two(t)
	s := mustOpen(t, dir)
	s.peers.disk.link = func(string, string) error { return syscall.EPERM }
	put(t, s, Peer{Name: "tokyo", PublicKey: peer.PublicKey{8}})
	old, err := s.peers.read(previous)
	if err != nil || old.value.Len() != 2 {
		t.Errorf("previous generation: got %v, %v; want 2 peers", old, err)
	}
}

func TestLeftoversAreRemoved(t *testing.T) {
	dir := two(t)
	write(t, filepath.Join(dir, tempPrefix+"123"), []byte("half a"))
	mustOpen(t, dir)
	if _, err := os.Stat(filepath.Join(dir, tempPrefix+"123")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a temporary file of a crash is still there (%v)", err)
	}
}
