package state

import (
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// maxRemoved bounds the stored keys of removed peers; the newest are kept.
const maxRemoved = 256

// NoteRemoved stores that an operator removed the peer with this key, which must not be added
// automatically again.
func (s *Store) NoteRemoved(k peer.PublicKey) error {
	return s.observed.update(func(o *observed) error {
		o.Removed = slices.DeleteFunc(o.Removed, func(r string) bool { return r == k.String() })
		o.Removed = append(o.Removed, k.String())
		o.Removed = o.Removed[max(0, len(o.Removed)-maxRemoved):]
		return nil
	})
}

// WasRemoved reports whether an operator removed the peer with this key.
func (s *Store) WasRemoved(k peer.PublicKey) bool {
	return slices.Contains(s.observed.load().Removed, k.String())
}

// WantAgain undoes NoteRemoved.
func (s *Store) WantAgain(k peer.PublicKey) error {
	if !s.WasRemoved(k) {
		return nil
	}
	return s.observed.update(func(o *observed) error {
		o.Removed = slices.DeleteFunc(o.Removed, func(r string) bool { return r == k.String() })
		return nil
	})
}
