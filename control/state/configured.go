package state

import (
	"maps"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Configured is the key that the configuration last gave to the peer called name; ok is false
// when it had no such peer.
func (s *Store) Configured(name string) (k peer.PublicKey, ok bool) {
	k, err := peer.ParsePublicKey(s.observed.load().Configured[name])
	return k, err == nil
}

// SetConfigured notes the keys of all peers that the configuration has, by name. One that has
// another key than before is the same peer, as its author says, and the key inherits from the
// one before, as by [Store.Inherit]. A peer that was not there in between is another one.
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
