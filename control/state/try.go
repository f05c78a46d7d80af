package state

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// triedWith is how much Try writes: a disk with less room is full.
const triedWith = 4 << 10 // bytes

// Try checks whether the directory can be written, and restores files that someone deleted from it,
// without which the next start would fail. It returns their names. A directory that is a copy of a
// backend is not tried.
func (s *Store) Try() (restored []string, err error) {
	if s.mirror != nil {
		return nil, nil
	}
	b := make([]byte, triedWith)
	_, _ = rand.Read(b) // zeros take no room on some disks
	temp, err := s.peers.disk.temporary(s.dir, b)
	if err == nil {
		err = os.Remove(temp)
	}
	if err != nil {
		return nil, advised(fmt.Errorf("write into %s: %w", s.dir, err), "")
	}
	for _, restore := range []func() (string, error){
		s.restoreKey, s.peers.restore, s.tickets.restore, s.identities.restore, s.observed.restore, s.boots.restore, s.relays.restore, s.overlay.restore, s.trial.restore,
	} {
		file, failed := restore()
		if file != "" {
			s.logger.Warn("state file was missing; wrote it again", slog.String("file", file))
			restored = append(restored, file)
		}
		err = errors.Join(err, failed)
	}
	return restored, err
}

// restoreKey writes the private key again if it was in the directory.
func (s *Store) restoreKey() (string, error) {
	file := filepath.Join(s.dir, keyFile)
	k := s.key.Load()
	if _, err := os.Stat(file); k == nil || !errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if _, err := putPrivateKey(file, *k); err != nil {
		return "", advised(err, "")
	}
	return file, nil
}

// restore writes the file again if it was there and is gone.
func (d *document[T]) restore() (string, error) {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	c := d.stored.Load()
	if _, err := os.Stat(d.path("")); d.closed || c.generation == 0 || !errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err := d.writeFile(c, ""); err != nil {
		return "", advised(err, "")
	}
	return d.path(""), nil
}
