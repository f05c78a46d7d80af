package roster

import (
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/tunnel/peer"
)

// IdentityFor returns the identity name of a newly enrolled peer, as stored: empty if an operator
// chose its name. Package auth explains what depends on it.
func IdentityFor(name string, k peer.PublicKey, chosen bool) string {
	if chosen {
		return ""
	}
	return auth.SelfNamed(name, k)
}

// heldError refuses an identity name that belongs to another key.
type heldError struct {
	name  string
	by    peer.PublicKey
	until time.Time // zero: the key is a current peer's
}

// Error returns the message for users.
func (e *heldError) Error() string {
	if e.until.IsZero() {
		return fmt.Sprintf("the name %s is in the user of the peer with the fingerprint %s (choose another name)", e.name, peer.Fingerprint(e.by))
	}
	return fmt.Sprintf("the name %s belongs to the key with the fingerprint %s until %s, when the last certificate ends that it was issued for this user (choose another name, or wait)",
		e.name, peer.Fingerprint(e.by), e.until.UTC().Format(time.RFC3339))
}

// FreeIdentity refuses an identity name that another key of the roster has, or a removed key with
// valid certificates for it.
func (reg *Registry) FreeIdentity(r *Roster, name string, k peer.PublicKey) error {
	for _, m := range r.Members() {
		if m.Identity == name && m.Key != k {
			return &heldError{name: name, by: m.Key}
		}
	}
	return reg.Reserved(name, k)
}

// Reserved refuses an identity name for which a removed key has valid certificates.
func (reg *Registry) Reserved(name string, k peer.PublicKey) error {
	if holder, until, ok := reg.store.IdentityHolder(name, k, time.Now()); ok {
		return &heldError{name: name, by: holder, until: until}
	}
	return nil
}

// freeIdentities is FreeIdentity for the members that are new in next, wherever they come from. A
// configured peer may have another key than before: the author of the configuration says that it is
// the same peer.
func (reg *Registry) freeIdentities(old, next *Roster) error {
	for _, m := range next.Members() {
		if was := old.ByName(m.Name); m.Stock || was != nil && was.Key == m.Key && was.Identity == m.Identity {
			continue
		}
		err := reg.FreeIdentity(next, m.Identity, m.Key)
		var held *heldError
		if before, ok := reg.store.Configured(m.Name); ok && m.FromFile && errors.As(err, &held) && held.by == before && !held.until.IsZero() {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: peer %s: %w", errConflict, m.Name, err)
		}
	}
	return nil
}

// noteConfigured makes a configured peer's new key inherit the identity of the old one.
func (reg *Registry) noteConfigured(r *Roster) {
	keys := map[string]peer.PublicKey{}
	for _, m := range r.Members() {
		if m.FromFile {
			keys[m.Name] = m.Key
		}
	}
	if err := reg.store.SetConfigured(keys); err != nil {
		reg.log.Warn("failed to record the keys of configured peers; a peer whose key changed may get no certificate", "error", err)
	}
}
