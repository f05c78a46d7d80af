package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/tunnel/peer"
)

// match holds a name and a key that were found against the peers: m is the one that has the
// key or, when nobody has it, the name. Then the key is another than the peer's.
func (r *roster) match(name string, k peer.PublicKey) (m *member, otherKey bool) {
	if k.IsZero() {
		return nil, false
	}
	if m := cmp.Or(r.byKey[k], r.next[k]); m != nil {
		return m, false
	}
	m = r.byName[name]
	return m, m != nil
}

// peerName is what an instance is called here: a peer's name is a DNS label, an instance's
// any text, such as "edge (2)". It is empty when nothing of it can be a name.
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

// tell logs what was found and lost since the last time.
func (s *lanSearch) tell(at time.Time) {
	ctx, r, now := s.g.ctx, s.g.roster.Load(), map[lanPlace]string{}
	for _, i := range s.found() {
		place, what := lanPlace{i.Name, i.Interface}, i.PublicKey.String()+i.Err
		now[place] = what
		if s.told[place] == what {
			continue
		}
		switch m, otherKey := r.match(i.Name, i.PublicKey); {
		case i.Err != "":
			s.g.log.Log(ctx, s.level(at, slog.LevelWarn), "what a gateway announces on the local network cannot be used", "name", printable(i.Name),
				"interface", i.Interface, "problem", printable(i.Err), "code", string(check.LANRecord))
		case otherKey:
			s.g.log.Log(ctx, s.level(at, slog.LevelWarn), "a peer's name is announced on the local network with another key, which is not followed", "peer", m.name,
				"interface", i.Interface, "found", peer.Fingerprint(i.PublicKey), "known", peer.Fingerprint(m.key), "code", string(check.LANOtherKey))
		default:
			s.g.log.Log(ctx, s.level(at, slog.LevelInfo), "gateway found on the local network", "name", printable(i.Name), "interface", i.Interface,
				"fingerprint", peer.Fingerprint(i.PublicKey), "addresses", fmt.Sprint(i.Addresses))
		}
	}
	for place := range s.told {
		if _, still := now[place]; !still {
			s.g.log.Log(ctx, s.level(at, slog.LevelInfo), "gateway is gone from the local network", "name", printable(place.name), "interface", place.iface)
		}
	}
	s.told = now
}

// admit makes peers of those that the configuration names by key, and of those that prove
// to know the secret.
func (s *lanSearch) admit(ctx context.Context) {
	l := s.g.running.Load().cfg.Discovery.LAN
	for _, i := range s.found() {
		listed := slices.Contains(l.AutoPeer, i.PublicKey)
		if i.Err != "" || i.PublicKey.IsZero() || !listed && !i.Member {
			continue
		}
		s.mu.Lock()
		unwanted := s.removed[i.PublicKey]
		s.mu.Unlock()
		if m, _ := s.g.roster.Load().match(i.Name, i.PublicKey); unwanted || m != nil {
			continue
		}
		why := "its key is in spec.discovery.lan.autoPeer"
		if !listed {
			why = "it knows the secret of spec.discovery.lan.secretFile"
		}
		name := peerName(i.Name)
		if err := s.g.befriend(ctx, name, claim{i.Name, i.PublicKey, ""}, l.Allow, false); err != nil {
			s.g.log.Warn("a gateway on the local network does not become a peer", "name", printable(i.Name),
				"fingerprint", peer.Fingerprint(i.PublicKey), "error", err)
			continue
		}
		s.g.log.Info("a gateway on the local network has become a peer", "peer", name,
			"fingerprint", peer.Fingerprint(i.PublicKey), "why", why, "allow", strings.Join(l.Allow, " "))
	}
}
