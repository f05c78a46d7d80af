package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/postern-dev/postern/tunnel/peer"
)

// maxKeyFile bounds what is read of a key file: a key has 44 characters.
const maxKeyFile = 1 << 10

// LoadPrivateKey reads a WireGuard private key. A file that others may read is refused: they may
// know its key.
func LoadPrivateKey(file string) (peer.PrivateKey, error) {
	info, err := os.Stat(file)
	if err != nil {
		return peer.PrivateKey{}, fmt.Errorf("read private key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return peer.PrivateKey{}, fmt.Errorf("private key %s has mode %04o, so others may read it (run `chmod 600 %s`; if others could log in here, make a new key)", file, mode, file)
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return peer.PrivateKey{}, fmt.Errorf("private key %s: %w", file, peer.ErrKey)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return peer.PrivateKey{}, fmt.Errorf("read private key: %w", err)
	}
	k, err := peer.ParsePrivateKey(strings.TrimSpace(string(b)))
	if err != nil {
		return peer.PrivateKey{}, fmt.Errorf("private key %s: %w", file, err)
	}
	return k, nil
}

// EnsurePrivateKey reads the key, or creates one with mode 0600 if the file is missing.
func EnsurePrivateKey(file string) (peer.PrivateKey, error) {
	k, err := LoadPrivateKey(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if k, err = peer.NewPrivateKey(); err != nil {
		return peer.PrivateKey{}, err
	}
	return putPrivateKey(file, k)
}

// keyText returns the content of a key file.
func keyText(k peer.PrivateKey) []byte { return []byte(k.Base64() + "\n") }

// putPrivateKey creates the file, or returns its key if there is one by now.
func putPrivateKey(file string, k peer.PrivateKey) (peer.PrivateKey, error) {
	d, dir := osDisk(), filepath.Dir(file)
	temp, err := d.temporary(dir, keyText(k))
	if err != nil {
		return peer.PrivateKey{}, fmt.Errorf("make private key %s: %w", file, remedy(err))
	}
	// A link, unlike a rename, never replaces a key that has appeared meanwhile.
	err = d.link(temp, file)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = d.rename(temp, file) // no hard links on this file system
	}
	_ = os.Remove(temp)
	if errors.Is(err, fs.ErrExist) {
		return LoadPrivateKey(file)
	}
	if err == nil {
		err = d.syncDir(dir)
	}
	if err != nil {
		return peer.PrivateKey{}, fmt.Errorf("make private key %s: %w", file, remedy(err))
	}
	return k, nil
}
