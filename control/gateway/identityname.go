package gateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/tunnel/peer"
)

// identityFor is the identity name of a peer that is enrolled now, as it is stored: empty
// where an operator chose its name. See package auth for what hangs on it.
func identityFor(name string, k peer.PublicKey, chosen bool) string {
	if chosen {
		return ""
	}
	return auth.SelfNamed(name, k)
}

// heldError refuses an identity name that another key has.
type heldError struct {
	name  string
	by    peer.PublicKey
	until time.Time // zero: the key is a peer's
}

// Error is the message for people.
func (e *heldError) Error() string {
	if e.until.IsZero() {
		return fmt.Sprintf("the name %s is in the user of the peer with the fingerprint %s (choose another name)", e.name, peer.Fingerprint(e.by))
	}
	return fmt.Sprintf("the name %s belongs to the key with the fingerprint %s until %s, when the last certificate ends that it was issued for this user (choose another name, or wait)",
		e.name, peer.Fingerprint(e.by), e.until.UTC().Format(time.RFC3339))
}

// freeIdentity refuses an identity name that another key of the roster has, or one that was
// removed and has certificates for it.
func (g *Gateway) freeIdentity(r *roster, name string, k peer.PublicKey) error {
	for _, m := range r.members {
		if m.identity == name && m.key != k {
			return &heldError{name: name, by: m.key}
		}
	}
	if holder, until, ok := g.store.IdentityHolder(name, k, time.Now()); ok {
		return &heldError{name: name, by: holder, until: until}
	}
	return nil
}

// freeIdentities is freeIdentity for those of a roster that were not in the one before,
// wherever they come from. A configured peer may have another key than the configuration gave
// it before: whoever wrote that says that it is the same peer.
func (g *Gateway) freeIdentities(old, next *roster) error {
	for _, m := range next.members {
		if was := old.byName[m.name]; m.stock || was != nil && was.key == m.key && was.identity == m.identity {
			continue
		}
		err := g.freeIdentity(next, m.identity, m.key)
		var held *heldError
		if before, ok := g.store.Configured(m.name); ok && m.fromFile && errors.As(err, &held) && held.by == before && !held.until.IsZero() {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: peer %s: %w", errConflict, m.name, err)
		}
	}
	return nil
}

// noteConfigured has a configured peer's key inherit from the one that it had before.
func (g *Gateway) noteConfigured(r *roster) {
	keys := map[string]peer.PublicKey{}
	for _, m := range r.members {
		if m.fromFile {
			keys[m.name] = m.key
		}
	}
	if err := g.store.SetConfigured(keys); err != nil {
		g.log.Warn("the keys of the configured peers cannot be noted; one that has another key than before may get no certificate", "error", err)
	}
}
