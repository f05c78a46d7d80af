package state

import (
	"maps"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Configured returns the key that the configuration last gave to the peer called name; ok is false
// if it had no such peer.
func (s *Store) Configured(name string) (k peer.PublicKey, ok bool) {
	k, err := peer.ParsePublicKey(s.observed.load().Configured[name])
	return k, err == nil
}

// SetConfigured stores the keys of all peers in the configuration, by name. A peer with a new key
// is the same peer, according to the author, so the key inherits from the old one, as with
// [Store.Inherit]. A peer that was missing in between is another one.
func (s *Store) SetConfigured(keys map[string]peer.PublicKey) error {
	texts, heirs := make(map[string]string, len(keys)), map[peer.PublicKey]peer.PublicKey{}
	for name, k := range keys {
		texts[name] = k.String()
		if was, ok := s.Configured(name); ok && was != k {
			heirs[was] = k
		}
	}
	if maps.Equal(texts, s.observed.load().Configured) {
		return nil
	}
	return s.inherit(heirs, func(o *observed) { o.Configured = texts })
}
