package state

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// nextKeyFile is the key that will replace the one in keyFile.
const nextKeyFile = keyFile + ".next"

// NextKey returns the key that will replace the gateway's, and creates it if there is none. It is
// stored, since peers that were told it must find it again after a restart.
func (s *Store) NextKey() (peer.PrivateKey, error) {
	return EnsurePrivateKey(filepath.Join(s.dir, nextKeyFile))
}

// DropNextKey deletes the next key. It is no error if there is none.
func (s *Store) DropNextKey() error {
	if err := os.Remove(filepath.Join(s.dir, nextKeyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the next private key: %w", remedy(err))
	}
	return nil
}

// maxRetired bounds the stored former keys of the gateway; the newest are kept.
const maxRetired = 16

// OwnKeys returns the gateway's next public key, zero if there is none, and its former ones. None
// of them may become a peer's.
func (s *Store) OwnKeys() (next peer.PublicKey, retired []peer.PublicKey) {
	if k, err := LoadPrivateKey(filepath.Join(s.dir, nextKeyFile)); err == nil {
		next = k.Public()
	}
	for _, text := range s.observed.load().Retired {
		if k, err := peer.ParsePublicKey(text); err == nil {
			retired = append(retired, k)
		}
	}
	return next, retired
}

// retire stores the key that is about to be replaced.
func (s *Store) retire() error {
	k, err := LoadPrivateKey(filepath.Join(s.dir, keyFile))
	if err != nil {
		return err
	}
	return s.observed.update(func(o *observed) error {
		text := k.Public().String()
		o.Retired = append(slices.DeleteFunc(o.Retired, func(r string) bool { return r == text }), text)
		o.Retired = o.Retired[max(0, len(o.Retired)-maxRetired):]
		return nil
	})
}

// UseNextKey replaces the gateway's key with the next one, from the next start on. A crash leaves
// one or the other.
func (s *Store) UseNextKey() error {
	k, err := LoadPrivateKey(filepath.Join(s.dir, nextKeyFile))
	if err != nil {
		return fmt.Errorf("replace the private key: %w", err)
	}
	if err := s.retire(); err != nil {
		s.logger.Warn("failed to record the former key; do not give it to a peer", slog.Any("error", err))
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
		// The backend has it, and the backend's copy is used at the next start.
		s.logger.Warn("failed to store the next private key in the directory; it is stored outside this pod", slog.Any("error", err))
	}
	// Peers may withdraw what they issued to the old key, so each is asked again.
	if err := s.identities.update(func(i *identities) error { clear(i.Identities); return nil }); err != nil && !errors.Is(err, ErrNotDurable) {
		s.logger.Warn("failed to delete the identities issued to the old key; they are replaced when a peer refuses them",
			slog.Any("error", err))
	}
	if err := s.DropNextKey(); err != nil { // otherwise the next rotation would announce this key again
		s.logger.Warn("private key replaced, but failed to remove the copy of the next key; remove it", slog.Any("error", err))
	}
	return nil
}

// Inherit passes what was learned about a peer's old key, and issued to it, on to the next key. What
// is still being issued to the old key under the identity name is then recorded for the next one.
func (s *Store) Inherit(old, next peer.PublicKey, identity string) error {
	before, had := s.successions.Load(identity)
	err := s.inherit(map[peer.PublicKey]peer.PublicKey{old: next}, func(*observed) {
		s.successions.Store(identity, succession{old, next, time.Now()}) // before anything else can be recorded
	})
	switch {
	case err == nil:
	case had:
		s.successions.Store(identity, before)
	default:
		s.successions.Delete(identity)
	}
	return err
}

// maxIssuance is longer than an identity takes from the request to its record. An old key that asks
// later belongs to a peer again.
const maxIssuance = 5 * time.Minute

// succession is the last replacement of a peer's key.
type succession struct {
	old, next peer.PublicKey
	at        time.Time
}

// holder returns the key for which an identity that was issued to k is recorded.
func (s *Store) holder(identity string, k peer.PublicKey) peer.PublicKey {
	v, ok := s.successions.Load(identity)
	if last, _ := v.(succession); ok && last.old == k && time.Since(last.at) < maxIssuance {
		return last.next
	}
	return k
}

// endSuccession forgets the replacement by a key that is no peer's any more.
func (s *Store) endSuccession(next peer.PublicKey) {
	s.successions.Range(func(identity, v any) bool {
		if last, _ := v.(succession); last.next == next {
			s.successions.CompareAndDelete(identity, v)
		}
		return true
	})
}

// inherit is Inherit for many keys at once, which may swap places. note is applied in the same
// write.
func (s *Store) inherit(heirs map[peer.PublicKey]peer.PublicKey, note func(*observed)) error {
	var err error
	if len(heirs) > 0 {
		err = s.identities.update(func(i *identities) error {
			was := maps.Clone(i.Identities)
			for old, next := range heirs {
				if id, ok := was[old.String()]; ok {
					i.Identities[next.String()] = id
				}
			}
			return nil
		})
	}
	if err == nil || errors.Is(err, ErrNotDurable) {
		err = s.observed.update(func(o *observed) error {
			was := maps.Clone(o.Peers)
			for old := range heirs {
				left := was[old.String()]
				left.Issued = nil
				o.Peers[old.String()] = left
			}
			for old, next := range heirs {
				v := was[old.String()].clone()
				v.Issued = append(v.Issued, o.Peers[next.String()].Issued...)
				o.Peers[next.String()] = v
			}
			note(o)
			return nil
		})
	}
	if err != nil && !errors.Is(err, ErrNotDurable) {
		return fmt.Errorf("remember what was learned of a peer under its next key: %w", err)
	}
	return nil
}
