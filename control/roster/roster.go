// Package roster knows who is a peer here and what it may reach.
//
//	configuration ─┐
//	peers joined  ─┼─▶ Roster ─▶ apply ─▶ tunnel · services · open connections ─▶ subscribers
//	open tickets  ─┘   (who)   (difference)
//
// A [Roster] is immutable. The [Registry] makes the next one whenever a source changes (a reload, a
// redeemed ticket, a command), applies the difference, and then notifies the subscribers. It holds
// the one lock under which changes of the peers are decided and take effect. A [View] is for those
// who only read.
package roster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Roster is the set of those who may use the tunnel at one moment. It is immutable.
type Roster struct {
	own peer.PublicKey // this gateway's
	// namespace is the gateway's, if it runs in a cluster.
	namespace string
	members   []*Member // sorted by name
	byName    map[string]*Member
	byKey     map[peer.PublicKey]*Member
	byAddr    map[netip.Addr]*Member // overlay addresses, also of next keys
	stock     []prefixOf             // those of stock peers: disjoint, sorted by address
	// next maps announced keys to their members.
	next    map[peer.PublicKey]*Member
	oneTime map[netip.Addr]ticket.OneTime
}

// Make combines the peers of the file, those that joined and the keys of the open tickets.
func Make(own peer.PublicKey, file []config.Peer, joined state.Peers, oneTime []ticket.OneTime) (*Roster, error) {
	r := newRoster(own, len(file)+joined.Len())
	options := map[string]config.Peer{}
	for _, p := range file {
		if p.PublicKey.IsZero() || p.Joined {
			options[p.Name] = p
			continue
		}
		if old, ok := joined.Get(p.Name); ok && old.PublicKey != p.PublicKey {
			return nil, fmt.Errorf("%w: peer %s has the key %s in the file but joined with %s (rename it in the file, or remove it here first: postern peer remove %s)",
				errConflict, p.Name, p.PublicKey, old.PublicKey, p.Name)
		}
		r.add(fileMember(p))
	}
	for _, p := range joined.All() {
		if m := r.byName[p.Name]; m != nil {
			m.supplement(p)
			continue
		}
		if other := r.byKey[p.PublicKey]; other != nil {
			return nil, fmt.Errorf("%w: %s in the file and %s, which joined, have one key %s (remove one of them)",
				errConflict, other.Name, p.Name, p.PublicKey)
		}
		m := joinedMember(own, p)
		if o, ok := options[p.Name]; ok && (!o.Joined || o.PublicKey == p.PublicKey || o.PublicKey == p.ObjectKey) {
			m.override(o)
		}
		r.add(m)
	}
	for _, o := range oneTime {
		r.oneTime[peer.OverlayAddr(o.PublicKey)] = o
	}
	for _, m := range r.members {
		if !m.Pending { // the tunnel, which has the others, checks those
			continue
		}
		for _, other := range r.members {
			if other.Stock && other.has(m.Address()) {
				return nil, fmt.Errorf("%w: %s, which waits for approval, has the address %s, which is in allowedIPs of %s (remove one of them)",
					errConflict, m.Name, m.Address(), other.Name)
			}
		}
	}
	r.settle()
	return r, nil
}

func newRoster(own peer.PublicKey, n int) *Roster {
	return &Roster{
		own: own, members: make([]*Member, 0, n), byName: make(map[string]*Member, n), byKey: make(map[peer.PublicKey]*Member, n),
		byAddr: make(map[netip.Addr]*Member, n), next: map[peer.PublicKey]*Member{}, oneTime: map[netip.Addr]ticket.OneTime{},
	}
}

func (r *Roster) add(m *Member) {
	r.members = append(r.members, m)
	r.byName[m.Name], r.byKey[m.Key] = m, m
	if a := m.Address(); a.IsValid() {
		r.byAddr[a] = m
	}
}

// prefixOf is a stock peer's addresses.
type prefixOf struct {
	prefix netip.Prefix
	member *Member
}

// settle sorts the members and their addresses, and adds their announced keys. A key that is already
// taken stays with its holder.
func (r *Roster) settle() {
	for _, m := range r.members {
		k := m.NextKey
		if k.IsZero() || m.Pending || k == r.own || r.byKey[k] != nil {
			continue
		}
		a := peer.OverlayAddr(k)
		if _, oneTime := r.oneTime[a]; !oneTime {
			r.next[k], r.byAddr[a] = m, m
		}
	}
	slices.SortFunc(r.members, func(a, b *Member) int { return cmp.Compare(a.Name, b.Name) })
	var all []prefixOf
	for _, m := range r.members {
		if m.Stock {
			for _, p := range m.AllowedIPs {
				all = append(all, prefixOf{p.Masked(), m})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b prefixOf) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	for _, p := range all { // Prefixes nest or are disjoint, and the wider one comes first.
		if n := len(r.stock); n == 0 || !r.stock[n-1].prefix.Overlaps(p.prefix) {
			r.stock = append(r.stock, p)
		}
	}
}

// peers returns the roster's tunnel configuration. A peer that waits for approval is not in it.
func (r *Roster) peers(proven func(peer.PublicKey) []netip.AddrPort) []peer.Config {
	out := make([]peer.Config, 0, len(r.members)+len(r.oneTime))
	for _, m := range r.members {
		if !m.Pending {
			out = append(out, m.tunnel(proven))
		}
	}
	for key, m := range r.next {
		// It dials us, and is a normal peer from the first handshake on.
		out = append(out, peer.Config{Name: nextName(m), PublicKey: key, PresharedKey: m.NextPSK, Managed: true})
	}
	for _, o := range r.oneTime {
		if o.PublicKey == r.own || r.byKey[o.PublicKey] != nil {
			continue // the state directory contradicts itself: the current holder wins
		}
		out = append(out, peer.Config{
			// Managed, though nobody selects a path: the path of the last handshake is used, and
			// answers go to every copy of an initiation if earlier ones got lost.
			Name: oneTimeName(o), PublicKey: o.PublicKey, PresharedKey: o.PresharedKey, Managed: true,
		})
	}
	slices.SortFunc(out, func(a, b peer.Config) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// nextName cannot be a peer's name: it is no DNS label.
func nextName(m *Member) string { return m.Name + ":next" }

// oneTimeName cannot be a peer's name: it is no DNS label.
func oneTimeName(o ticket.OneTime) string { return "ticket:" + o.Ticket.String() }

// Of returns a roster of just these members.
func Of(members ...*Member) *Roster {
	r := newRoster(peer.PublicKey{}, len(members))
	for _, m := range members {
		r.add(m)
	}
	r.settle()
	return r
}

// Members returns all of them, sorted by name. The list must not be changed.
func (r *Roster) Members() []*Member { return r.members }

// ByName returns the member with the name; nil if there is none.
func (r *Roster) ByName(name string) *Member { return r.byName[name] }

// ByKey returns the member with the key; nil if there is none.
func (r *Roster) ByKey(k peer.PublicKey) *Member { return r.byKey[k] }

// Next returns the member that announced the key as its next one; nil if there is none.
func (r *Roster) Next(k peer.PublicKey) *Member { return r.next[k] }

// Holder returns the member that has or announced the key; nil if there is none.
func (r *Roster) Holder(k peer.PublicKey) *Member { return cmp.Or(r.byKey[k], r.next[k]) }

// Match compares a discovered name and key with the members: m is the one with the key or, if there
// is none, with the name. In the latter case otherKey is true.
func (r *Roster) Match(name string, k peer.PublicKey) (m *Member, otherKey bool) {
	if k.IsZero() {
		return nil, false
	}
	if m := r.Holder(k); m != nil {
		return m, false
	}
	m = r.byName[name]
	return m, m != nil
}

// Caller returns the owner of an overlay address. For a stock peer, which auth does not know, it
// returns the name for the log.
func (r *Roster) Caller(a netip.Addr) (auth.Caller, bool) {
	if m := r.byAddr[a]; m != nil {
		return auth.Caller{Name: m.Name, Identity: m.Identity, PublicKey: m.Key, Kind: auth.KindPeer, Grants: m.Allow, Pending: m.Pending, NotBefore: m.Since}, true
	}
	if o, ok := r.oneTime[a]; ok {
		return auth.Caller{PublicKey: o.PublicKey, Kind: auth.KindOneTime}, true
	}
	if m := r.Find(a); m != nil { // by its own address: a plain WireGuard peer
		return auth.Caller{Name: m.Name, PublicKey: m.Key, Kind: auth.KindStock}, true
	}
	return auth.Caller{}, false
}

// Resolve returns the owner of an inner address.
func (r *Roster) Resolve(a netip.Addr) (forward.Peer, bool) {
	if m := r.Find(a); m != nil {
		return forward.Peer{Name: m.Name, Mute: m.Stock && !auth.Serves(auth.KindStock)}, true
	}
	if o, ok := r.oneTime[a]; ok {
		return forward.Peer{Name: oneTimeName(o), OneTime: true}, true
	}
	if m := r.byAddr[a]; m != nil { // waits for approval
		return forward.Peer{Name: m.Name}, false
	}
	return forward.Peer{}, false
}

// Find returns the member that may send from the address; nil if there is none.
func (r *Roster) Find(a netip.Addr) *Member {
	if m := r.byAddr[a]; m != nil {
		if m.Pending {
			return nil
		}
		return m
	}
	i, exact := slices.BinarySearchFunc(r.stock, a, func(p prefixOf, a netip.Addr) int { return p.prefix.Addr().Compare(a) })
	if !exact {
		i-- // the last one that begins before
	}
	if i < 0 || !r.stock[i].prefix.Contains(a) {
		return nil
	}
	return r.stock[i].member
}

// loses reports whether an address is a member's, and in next no longer the same one's.
func (r *Roster) loses(a netip.Addr, next *Roster) bool {
	was, now := r.Find(a), next.Find(a)
	return was != nil && (now == nil || now.Key != was.Key && now.Key != was.NextKey)
}

// Owner returns an address that stands for all inner addresses of the same member: its overlay
// address. An address of nobody stands for itself.
func (r *Roster) Owner(a netip.Addr) netip.Addr {
	if m := r.Find(a); m != nil {
		return m.Overlay
	}
	return a
}

// allowed is the policy of services other than auth. Cluster services have their namespace before a
// slash.
func (r *Roster) allowed(p forward.Peer, service string) bool {
	m := r.byName[p.Name]
	if p.OneTime || m == nil || m.Pending {
		return false
	}
	if namespace, _, ofCluster := strings.Cut(service, "/"); ofCluster {
		return r.Exports(m, namespace)
	}
	return m.allows(service)
}

// Exports reports whether a member may have the services of a namespace of this cluster, Imports
// whether those of a namespace are imported from it.
func (r *Roster) Exports(m *Member, namespace string) bool {
	return m.Export.Match(namespace, r.namespace)
}
func (r *Roster) Imports(m *Member, namespace string) bool {
	return m.Import.Match(namespace, r.namespace)
}

// Void reports whether this stands for the time before the first roster.
func (r *Roster) Void() bool { return r.byName == nil }

// Without returns the members that next does not have, by name and key.
func (r *Roster) Without(next *Roster) []*Member {
	var out []*Member
	for _, m := range r.members {
		if now := next.byName[m.Name]; now == nil || now.Key != m.Key {
			out = append(out, m)
		}
	}
	return out
}

// hasOther reports whether the one-time peers differ from the list.
func (r *Roster) hasOther(list []ticket.OneTime) bool {
	for _, o := range list {
		if _, ok := r.oneTime[peer.OverlayAddr(o.PublicKey)]; !ok {
			return true
		}
	}
	return len(list) != len(r.oneTime)
}

// Names returns the names of the members in the tunnel.
func (r *Roster) Names() []string {
	var out []string
	for _, m := range r.members {
		if !m.Pending {
			out = append(out, m.Name)
		}
	}
	return out
}
