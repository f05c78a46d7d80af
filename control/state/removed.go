package state

import (
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// maxRemoved bounds the keys of removed peers that are remembered, the last ones.
const maxRemoved = 256

// NoteRemoved remembers that an operator removed the peer with this key, which is not to
// become one by itself again.
func (s *Store) NoteRemoved(k peer.PublicKey) error {
	return s.observed.update(func(o *observed) error {
		o.Removed = slices.DeleteFunc(o.Removed, func(r string) bool { return r == k.String() })
		o.Removed = append(o.Removed, k.String())
		o.Removed = o.Removed[max(0, len(o.Removed)-maxRemoved):]
		return nil
	})
}

// WasRemoved says whether an operator removed the peer with this key.
func (s *Store) WasRemoved(k peer.PublicKey) bool {
	return slices.Contains(s.observed.load().Removed, k.String())
}

// WantAgain forgets that an operator removed the peer with this key.
func (s *Store) WantAgain(k peer.PublicKey) error {
	if !s.WasRemoved(k) {
		return nil
	}
	return s.observed.update(func(o *observed) error {
		o.Removed = slices.DeleteFunc(o.Removed, func(r string) bool { return r == k.String() })
		return nil
	})
}
