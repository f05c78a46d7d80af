package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestPrivateKeyIsMadeOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "private.key")
	keys := make([]peer.PrivateKey, 16)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = EnsurePrivateKey(file); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if !k.Equal(keys[0]) || k.IsZero() {
			t.Error("two callers got different keys")
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := keys[0].Base64() + "\n"; string(b) != want {
		t.Errorf("the file has %d bytes, want the key as wg genkey prints it", len(b))
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %04o, want 0600", mode)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("%d files were left behind", len(entries)-1)
	}
}

func TestPrivateKeyRefusals(t *testing.T) {
	k, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, content string
		mode          fs.FileMode
		want          []string
	}{
		{"world-readable", k.Base64(), 0o644, []string{"0644", "chmod 600 "}},
		{"group-readable", k.Base64(), 0o640, []string{"0640", "chmod 600 "}},
		{"world-writable", k.Base64(), 0o602, []string{"0602", "chmod 600 "}},
		{"empty", "", 0o600, []string{"not a WireGuard key"}},
		{"public text", "hello", 0o600, []string{"not a WireGuard key"}},
		{"too long", strings.Repeat("A", 2000), 0o600, []string{"not a WireGuard key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "k")
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, c.mode); err != nil { // the umask does not affect this
				t.Fatal(err)
			}
			_, err := EnsurePrivateKey(file)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, file) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), k.Base64()) {
				t.Error("the error tells the key")
			}
		})
	}
}

func TestPrivateKeyInADirectoryThatIsMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "missing", "private.key")
	if _, err := EnsurePrivateKey(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names %s", err, file)
	}
}

// A lost key must not be replaced silently.
func TestALostKeyIsNotMadeAnew(t *testing.T) {
	dir := fresh(t)
	start := func() (peer.PrivateKey, error) {
		s := mustOpen(t, dir)
		defer mustClose(t, s)
		k, err := s.PrivateKey()
		if err == nil {
			_, err = s.Boot(time.Now())
		}
		return k, err
	}
	key, err := start()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, keyFile)
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := start(); !errors.Is(err, ErrKeyLost) || !strings.Contains(err.Error(), key.Public().String()) || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v, want %v with the public key and the directory", err, ErrKeyLost)
		}
	}
	for _, damaged := range []string{"", "garbage", strings.Repeat("x", maxKeyFile+1)} {
		if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := start(); !errors.Is(err, ErrKeyLost) || !strings.Contains(err.Error(), key.Public().String()) || !strings.Contains(err.Error(), "not a WireGuard key") {
			t.Errorf("%.10q: got %v, want %v with the public key and the damage", damaged, err, ErrKeyLost)
		}
	}
	if err := os.WriteFile(file, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := start(); err != nil || !again.Equal(key) {
		t.Errorf("put back: got %v, want the same key", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if other, err := start(); err != nil || other.Equal(key) {
		t.Errorf("in an empty directory: got %v, want another key", err)
	}
}

// The Secret of a pod is deleted while the pod is stopped.
func TestAKeyThatTheBackendLost(t *testing.T) {
	c := newCell()
	dir := fresh(t)
	s := openWith(t, dir, c)
	key, err := s.PrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	delete(c.files, keyFile)
	c.hadKey, c.term = key.Public(), "b"

	if _, err := elsewhere(t, c).PrivateKey(); !errors.Is(err, ErrKeyLost) || !strings.Contains(err.Error(), key.Public().String()) {
		t.Errorf("in an empty directory: got %v, want %v with the public key", err, ErrKeyLost)
	}
	if len(c.files[keyFile]) > 0 {
		t.Error("another key was made")
	}
	// The directory of an earlier term still has it.
	if again, err := openWith(t, dir, c).PrivateKey(); err != nil || !again.Equal(key) || len(c.files[keyFile]) == 0 {
		t.Errorf("with the earlier directory: got %v, want the same key, stored again", err)
	}
}
