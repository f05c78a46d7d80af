package state

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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
		if s.mirror == nil {
			return fmt.Errorf("replace the private key: %w", remedy(err))
		}
		// The backend has it, and what it has counts at the next start.
		s.logger.Warn("the next private key is kept outside of this pod, and the directory still has the one before", slog.Any("error", err))
	}
	// Whatever peers issued to the old key they may take back: each is asked anew.
	if err := s.identities.update(func(i *identities) error { clear(i.Identities); return nil }); err != nil && !errors.Is(err, ErrNotDurable) {
		s.logger.Warn("the identities that peers issued to the old key cannot be forgotten; they are replaced when they are refused",
			slog.Any("error", err))
	}
	if err := s.DropNextKey(); err != nil { // the next rotation would announce this key again
		s.logger.Warn("the private key is replaced, and its copy as the next one is still there; remove it", slog.Any("error", err))
	}
	return nil
}

// Inherit gives a peer's next key what was learned of the one before. What was issued to
// the old one stays noted there.
func (s *Store) Inherit(old, next peer.PublicKey) error {
	err := s.identities.update(func(i *identities) error {
		if id, ok := i.Identities[old.String()]; ok {
			i.Identities[next.String()] = id
		}
		return nil
	})
	if err == nil || errors.Is(err, ErrNotDurable) {
		err = s.observed.update(func(o *observed) error {
			v := o.Peers[old.String()].clone()
			v.Issued = nil
			o.Peers[next.String()] = v
			return nil
		})
	}
	if err != nil && !errors.Is(err, ErrNotDurable) {
		return fmt.Errorf("remember what was learned of a peer under its next key: %w", err)
	}
	return nil
}
