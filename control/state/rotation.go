package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/postern-dev/postern/tunnel/peer"
)

// nextKeyFile is the key that is to take the place of keyFile's.
const nextKeyFile = keyFile + ".next"

// NextKey gives the key that is to take the place of the gateway's, and makes it when there
// is none: peers that were told of it must find it again after a restart.
func (s *Store) NextKey() (peer.PrivateKey, error) {
	return EnsurePrivateKey(filepath.Join(s.dir, nextKeyFile))
}

// DropNextKey forgets the next key. That there is none is no error.
func (s *Store) DropNextKey() error {
	if err := os.Remove(filepath.Join(s.dir, nextKeyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the next private key: %w", remedy(err))
	}
	return nil
}

// UseNextKey makes the next key the gateway's; the one before is gone. It counts from the
// next start. A crash leaves one or the other.
func (s *Store) UseNextKey() error {
	k, err := LoadPrivateKey(filepath.Join(s.dir, nextKeyFile))
	if err != nil {
		return fmt.Errorf("replace the private key: %w", err)
	}
	if s.mirror != nil {
		if _, err := s.mirror.save(keyFile, keyText(k), firmly); err != nil {
			return fmt.Errorf("replace the private key: %w", err)
		}
	}
	if err := osDisk().replace(s.dir, keyFile, keyText(k)); err != nil && !errors.Is(err, ErrNotDurable) {
		return fmt.Errorf("replace the private key: %w", remedy(err))
	}
	return s.DropNextKey()
}
