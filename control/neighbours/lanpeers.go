package neighbours

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/tunnel/peer"
)

// peerName is the local name of an instance: a peer's name is a DNS label, an instance's is any
// text, such as "edge (2)". It is empty if no name can be made of it.
func peerName(instance string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return ' '
	}, instance)
	name = strings.Join(strings.Fields(name), "-")
	name = strings.Trim(name[:min(len(name), api.MaxNameLength)], "-")
	if instance == "" || api.CheckName(instance) == nil {
		return instance
	}
	return name
}

// tell logs what was found and lost since the last call.
func (s *lanSearch) tell(ctx context.Context) {
	r, now := s.o.Peers.Load(), map[lanPlace]string{}
	for _, i := range s.found() {
		place, what := lanPlace{i.Name, i.Interface}, i.PublicKey.String()+i.Err.RawUnsafe()
		now[place] = what
		if s.told[place] == what {
			continue
		}
		switch m, otherKey := r.Match(i.Name.RawUnsafe(), i.PublicKey); {
		case !i.Err.IsZero():
			s.o.Logger.WarnContext(ctx, "invalid announcement on the local network", "name", i.Name,
				"interface", i.Interface, "problem", i.Err, "code", string(catalogue.LANRecord))
		case otherKey:
			s.o.Logger.WarnContext(ctx, "ignoring a LAN announcement of a peer's name with a different key", "peer", m.Name,
				"interface", i.Interface, "found", peer.Fingerprint(i.PublicKey), "known", peer.Fingerprint(m.Key), "code", string(catalogue.LANOtherKey))
		default:
			s.o.Logger.InfoContext(ctx, "gateway found on the local network", "name", i.Name, "interface", i.Interface,
				"fingerprint", peer.Fingerprint(i.PublicKey), "addresses", fmt.Sprint(i.Addresses))
		}
	}
	for place := range s.told {
		if _, still := now[place]; !still {
			s.o.Logger.InfoContext(ctx, "gateway left the local network", "name", place.name, "interface", place.iface)
		}
	}
	s.told = now
}

// wish is a gateway that is to become a peer, and its name.
type wish struct {
	name   string
	chosen bool // by an operator
	claim  claim
	why    string
}

// wishes returns the gateways that the configuration lists by key, and first those that prove to
// know the secret. An announced name is used only with that proof, which covers the name: a key is
// public, and RBAC knows a peer by its name.
func wishes(l config.LAN, found []lan.Instance) []wish {
	var out []wish
	add := func(w wish) {
		if !slices.ContainsFunc(out, func(o wish) bool { return o.name == w.name && o.claim.key == w.claim.key }) {
			out = append(out, w)
		}
	}
	unusable := func(i lan.Instance) bool { return !i.Err.IsZero() || i.PublicKey.IsZero() }
	const listed = "its key is in spec.discovery.lan.autoPeer"
	for _, i := range found {
		if n := entry(l.AutoPeer, i.PublicKey); unusable(i) || !i.Member || n >= 0 && l.AutoPeer[n].Name != "" {
			continue
		}
		add(wish{peerName(i.Name.RawUnsafe()), false, claim{name: i.Name, key: i.PublicKey}, "it knows the secret of spec.discovery.lan.secretFile"})
	}
	for _, i := range found {
		n := entry(l.AutoPeer, i.PublicKey)
		if unusable(i) || n < 0 || l.AutoPeer[n].Name == "" && slices.ContainsFunc(out, func(o wish) bool { return o.claim.key == i.PublicKey }) {
			continue
		}
		name := l.AutoPeer[n].Name
		add(wish{cmp.Or(name, nameOfKey(i.PublicKey)), name != "", claim{name: i.Name, key: i.PublicKey}, listed})
	}
	return out
}

// entry returns the index of a key in the list, or -1.
func entry(list []config.AutoPeer, k peer.PublicKey) int {
	return slices.IndexFunc(list, func(p config.AutoPeer) bool { return p.Key == k })
}

// nameOfKey is the name of a gateway of which only the key is known.
func nameOfKey(k peer.PublicKey) string { return "gateway-" + peer.Fingerprint(k) }

// admit adds gateways that should become peers.
func (s *lanSearch) admit(ctx context.Context) {
	l := s.o.Peers.Config().Discovery.LAN
	failed := map[peer.PublicKey][]string{}
	for _, w := range wishes(l, s.found()) {
		// In this order: a removal is noted before the peer is gone. A name that another peer has
		// was already reported.
		m, otherKey := s.o.Peers.Load().Match(w.name, w.claim.key)
		if m != nil && (!otherKey || !w.chosen) || s.o.Store.WasRemoved(w.claim.key) {
			continue
		}
		print := peer.Fingerprint(w.claim.key)
		if err := s.o.add(ctx, w.name, w.claim, l.Allow, w.chosen); err != nil {
			failed[w.claim.key] = append(failed[w.claim.key], err.Error())
			s.tellRefused(ctx, w, err)
			continue
		}
		s.o.Logger.Info("added a gateway on the local network as a peer", "peer", w.name, "fingerprint", print, "reason", w.why, "allow", strings.Join(l.Allow, " "))
	}
	s.refused = failed
}

// tellRefused logs why a gateway does not become a peer, unless the reason is the same as last
// time: it is retried whenever anyone comes or goes.
func (s *lanSearch) tellRefused(ctx context.Context, w wish, err error) {
	if slices.Contains(s.refused[w.claim.key], err.Error()) {
		return
	}
	s.o.Logger.WarnContext(ctx, "failed to add a gateway on the local network as a peer", "name", w.claim.name,
		"fingerprint", peer.Fingerprint(w.claim.key), "error", err)
}
