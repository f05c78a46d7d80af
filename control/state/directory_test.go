package state

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhoMayShareAStateDirectory(t *testing.T) {
	const root, us, them = 0, 1000, 1001
	for _, c := range []struct {
		name        string
		mode        fs.FileMode
		owner, self int
		want        exposure
	}{
		{"ours alone", 0o700, us, us, private},
		{"ours and everybody's", 0o777, us, us, tightened},
		{"ours, listed by everybody", 0o755, us, us, tightened},
		{"ours and a group's", 0o2770, us, us, tightened},
		{"root's and root's", 0o755, root, root, tightened},
		{"a volume with an fsGroup", 0o770, root, us, tolerated},
		{"a volume with an fsGroup, listed by everybody", 0o775, root, us, tolerated},
		{"the mount point of an emptyDir", 0o777, root, us, refused},
		{"another user's", 0o700, them, us, refused},
		{"another user's, and a group's", 0o770, them, us, refused},
		{"another user's, as root", 0o700, them, root, refused},
		{"root's alone", 0o700, root, us, private}, // opening the files fails, with the reason
	} {
		if got := expose(c.mode, c.owner, c.self); got != c.want {
			t.Errorf("%s (%04o of %d, used by %d): got %d, want %d", c.name, c.mode, c.owner, c.self, got, c.want)
		}
	}
}

func TestAnOpenStateDirectoryIsTightened(t *testing.T) {
	for _, mode := range []fs.FileMode{0o777, 0o750, 0o701, 0o770 | fs.ModeSetgid} {
		t.Run(fmt.Sprintf("%04o", octal(mode)), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, mode); err != nil { // regardless of the umask
				t.Fatal(err)
			}
			var out bytes.Buffer
			s, err := Open(dir, slog.New(slog.NewTextHandler(&out, nil)))
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, s)
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the mode is %v (%v), want 0700", info.Mode(), err)
			}
			for _, want := range []string{"WARN", CodeExposed, dir, fmt.Sprintf("mode=%04o", octal(mode))} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the log lacks %q: %s", want, out.String())
				}
			}
			out.Reset()
			if s, err = Open(dir, slog.New(slog.NewTextHandler(&out, nil))); err != nil {
				t.Fatal(err)
			}
			mustClose(t, s)
			if out.Len() > 0 {
				t.Errorf("the next start warns again: %s", out.String())
			}
		})
	}
}

func TestAnotherUsersStateDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { // so that a directory of root is refused as well
		t.Fatal(err)
	}
	owner := os.Geteuid()
	err := shutOut(dir, owner+1, slog.New(slog.DiscardHandler))
	for _, want := range []string{dir, fmt.Sprintf("belongs to user %d", owner), "0777", "spec.stateDir", "0700"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %q", err, want)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("a refused directory was changed: %v, %v", info.Mode(), err)
	}
}
