package gateway

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// holder is whose a key is that somebody wants for a peer.
type holder struct {
	m       *member // the peer; nil when the key is no peer's
	present bool    // it is the key that the peer has, rather than the one it will have
	what    string  // such as "the key of peer edge"
}

// holderOf says whose a key is; nil when it is free to become a peer's. It is the one place
// that decides so, wherever a key comes from: a ticket, a reply, an announcement, a command, a
// search, a file or an object.
func (g *Gateway) holderOf(k peer.PublicKey) *holder {
	if _, err := g.key.SharedSecret(k); err != nil {
		return &holder{what: "of low order, which nobody has to itself"}
	}
	next, retired := g.store.OwnKeys()
	switch {
	case k == g.publicKey:
		return &holder{what: "this gateway's own public key"}
	case k == next:
		return &holder{what: "this gateway's own next key"}
	case slices.Contains(retired, k):
		return &holder{what: "a former key of this gateway"}
	case g.book.IsOneTime(k):
		return &holder{what: "the one-time key of a ticket"}
	}
	r := g.roster.Load()
	if m := r.byKey[k]; m != nil {
		return &holder{m, true, "the key of peer " + m.name}
	}
	for _, m := range r.members {
		switch {
		case m.nextKey == k:
			return &holder{m, false, "the key that peer " + m.name + " announced as its next one"}
		case slices.Contains(m.former, k):
			return &holder{m, false, "a former key of peer " + m.name}
		}
	}
	return nil
}

// is reports whether the key is the present one of the peer with this name.
func (h *holder) is(name string) bool { return h.m != nil && h.present && h.m.name == name }

// hint says to the operator here what to do about it.
func (h *holder) hint() string {
	if h.m == nil {
		return ""
	}
	if h.present {
		return fmt.Sprintf("what it may reach is set by `postern peer allow %s`; to begin again: postern peer remove %s", h.m.name, h.m.name)
	}
	return "if the key is not that peer's: postern peer remove " + h.m.name
}

// checkKey refuses a key for the peer called name, in the words of a command. A key that the
// peer has already is none to refuse.
func (g *Gateway) checkKey(what, name string, k peer.PublicKey) error {
	if h := g.holderOf(k); h != nil && !h.is(name) {
		return admin.Conflict(fmt.Sprintf("%s: the key %s is %s", what, k, h.what), h.hint())
	}
	return nil
}

// checkConfigured refuses keys that a configuration brings in. What peers have now is compared
// with each other when the configuration is applied.
func (g *Gateway) checkConfigured(old, next *config.Resolved) error {
	for _, p := range next.Peers {
		known := func(q config.Peer) bool { return q.PublicKey == p.PublicKey }
		if p.PublicKey.IsZero() || p.Joined || slices.ContainsFunc(old.Peers, known) {
			continue
		}
		if h := g.holderOf(p.PublicKey); h != nil && !h.present {
			return fmt.Errorf("%w: peer %s has the key %s, which is %s", errConflict, p.Name, p.PublicKey, h.what)
		}
	}
	return nil
}

// names tells the ticket book who can become a peer, and by which name.
type names struct{ g *Gateway }

// Reserve refuses a name that another key has, or has certificates for, and a key that is
// somebody's already: there is nothing to join for a peer.
func (n names) Reserve(name string, key peer.PublicKey, chosen bool) error {
	if h := n.g.holderOf(key); h != nil {
		return &ticket.KeyTakenError{Peer: h.m != nil, Holder: h.what, Hint: h.hint()}
	}
	if cfg := n.g.running.Load().cfg; !chosen && keepsOptions(cfg, name) {
		return fmt.Errorf("the inviter's configuration has options for a peer %s, which only its operator gives to somebody: invite with `--name %s`, or with another name", name, name)
	}
	r := n.g.roster.Load()
	if r.byName[name] != nil || n.g.store.Peers().HasAside(name) {
		return &ticket.NameTakenError{Name: name}
	}
	return n.g.freeIdentity(r, cmp.Or(identityFor(name, key, chosen), name), key)
}
