package roster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// KeyHolder is the holder of a key that someone wants for a peer.
type KeyHolder struct {
	Member  *Member // the peer; nil if the key belongs to none
	Present bool    // it is the peer's current key, not its next one
	What    string  // such as "the key of peer edge"
}

// HolderOf returns the holder of a key; nil if a peer may have it. This is the only place that
// decides so, wherever a key comes from: a ticket, a reply, an announcement, a command, a search, a
// file or an object.
func (reg *Registry) HolderOf(k peer.PublicKey) *KeyHolder {
	if _, err := reg.o.Key.SharedSecret(k); err != nil {
		return &KeyHolder{What: "of low order, which nobody has to itself"}
	}
	next, retired := reg.store.OwnKeys()
	switch {
	case k == reg.publicKey:
		return &KeyHolder{What: "this gateway's own public key"}
	case k == next:
		return &KeyHolder{What: "this gateway's own next key"}
	case slices.Contains(retired, k):
		return &KeyHolder{What: "a former key of this gateway"}
	case reg.book.IsOneTime(k):
		return &KeyHolder{What: "the one-time key of a ticket"}
	}
	r := reg.Load()
	if m := r.ByKey(k); m != nil {
		return &KeyHolder{m, true, "the key of peer " + m.Name}
	}
	address := peer.OverlayAddr(k)
	for _, m := range r.Members() {
		switch {
		case m.Stock && m.has(address):
			return &KeyHolder{What: "one whose address in the overlay peer " + m.Name + " has, by its allowedIPs"}
		case m.NextKey == k:
			return &KeyHolder{m, false, "the key that peer " + m.Name + " announced as its next one"}
		case slices.Contains(m.Former, k):
			return &KeyHolder{m, false, "a former key of peer " + m.Name}
		}
	}
	return nil
}

// is reports whether the key is the current one of the peer with this name.
func (h *KeyHolder) is(name string) bool {
	return h.Member != nil && h.Present && h.Member.Name == name
}

// hint tells the local operator what to do about it.
func (h *KeyHolder) hint() string {
	if h.Member == nil {
		return ""
	}
	if h.Present {
		return fmt.Sprintf("what it may reach is set by `postern peer allow %s`; to begin again: postern peer remove %s", h.Member.Name, h.Member.Name)
	}
	return "if the key is not that peer's, or it is to join with it again: postern peer remove " + h.Member.Name
}

// CheckKey refuses a key for the peer called name, in a command's words. The peer's own key is not
// refused.
func (reg *Registry) CheckKey(what, name string, k peer.PublicKey) error {
	if h := reg.HolderOf(k); h != nil && !h.is(name) {
		return admin.Conflict(fmt.Sprintf("%s: the key %s is %s", what, k, h.What), h.hint())
	}
	return nil
}

// CheckConfigured refuses invalid keys of a new configuration. Applying it compares the keys of
// current peers with each other.
func (reg *Registry) CheckConfigured(old, next *config.Resolved) error {
	for _, p := range next.Peers {
		known := func(q config.Peer) bool { return q.PublicKey == p.PublicKey }
		if p.PublicKey.IsZero() || p.Joined || slices.ContainsFunc(old.Peers, known) {
			continue
		}
		if h := reg.HolderOf(p.PublicKey); h != nil && !h.Present {
			return fmt.Errorf("%w: peer %s has the key %s, which is %s", errConflict, p.Name, p.PublicKey, h.What)
		}
	}
	return nil
}

// Reserve refuses a name that belongs to another key, or for which one has certificates, and a key
// that is taken. It makes reg a [ticket.Names].
func (reg *Registry) Reserve(name string, key peer.PublicKey, chosen bool) error {
	if h := reg.HolderOf(key); h != nil {
		return &ticket.KeyTakenError{Peer: h.Member != nil, Replaced: h.Member != nil && slices.Contains(h.Member.Former, key), Holder: h.What, Hint: h.hint()}
	}
	if cfg := reg.Config(); !chosen && KeepsOptions(cfg, name) {
		return fmt.Errorf("the inviter's configuration has options for a peer %s, so only its operator can give that name: invite with `--name %s`, or with another name", name, name)
	}
	r := reg.Load()
	if r.byName[name] != nil || reg.store.Peers().HasAside(name) {
		return &ticket.NameTakenError{Name: name}
	}
	return reg.FreeIdentity(r, cmp.Or(IdentityFor(name, key, chosen), name), key)
}
