package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// keepalive is the interval of WireGuard's persistent keepalive towards stock peers that
// we dial: below the 30 s after which Linux forgets an unreplied UDP mapping.
const keepalive = 20 * time.Second

// noListener is kept instead of an address when an operator wants none.
const noListener = "none"

// member is a peer with everything that the gateway must know of it, wherever it came
// from. It is not changed once it is in a roster.
type member struct {
	name string
	// identity is the name in its user or account at the API server.
	identity string
	key      peer.PublicKey
	psk      peer.PresharedKey
	// overlay is its address there, whether it uses it or not.
	overlay netip.Addr
	mode    string
	// candidates are those of the ticket or the configuration, announced those that the peer
	// told of itself when it joined: they are dialled only as far as they may be.
	candidates, announced []ticket.Candidate
	// names are endpoints given as host:port, which the path finder resolves.
	names []string
	allow []string
	// local maps services of the peer to listen addresses; "" is a loopback port.
	local      map[string]string
	stock      bool
	allowedIPs []netip.Prefix
	pending    bool
	fromFile   bool
	// fileAllows: what it is allowed is what the file says, though it joined by ticket.
	fileAllows bool
	// direct is how its services may be checked outside the tunnel.
	direct check.DirectFacts
	origin state.Origin
	// since is when it joined or was added; zero for one that the configuration alone names.
	since time.Time
	// nextKey is what it announced, with its preshared key.
	nextKey peer.PublicKey
	nextPSK peer.PresharedKey
	// former are the keys that it had before, and ticket is what it came by, if it did.
	former []peer.PublicKey
	ticket string
}

// keys are all that the member has, had and will have.
func (m *member) keys() []peer.PublicKey {
	all := append([]peer.PublicKey{m.key}, m.former...)
	if !m.nextKey.IsZero() {
		all = append(all, m.nextKey)
	}
	return all
}

// address is the overlay address; invalid for a stock peer.
func (m *member) address() netip.Addr {
	if m.stock {
		return netip.Addr{}
	}
	return m.overlay
}

// subject is the member as issuers know it.
func (m *member) subject() auth.Subject {
	return auth.Subject{Name: m.name, Identity: m.identity, PublicKey: m.key}
}

func (m *member) allows(service string) bool { return slices.Contains(m.allow, service) }

// endpoints are the addresses of the candidates, those proven in an earlier run first.
func (m *member) endpoints(proven []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	add := func(a netip.AddrPort) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range proven {
		add(a)
	}
	for _, c := range m.known() {
		add(c.Addr)
	}
	return out
}

// tunnel is the member in the tunnel's terms; proven tells where it was heard from before.
func (m *member) tunnel(proven func(peer.PublicKey) []netip.AddrPort) peer.Config {
	c := peer.Config{
		Name: m.name, PublicKey: m.key, PresharedKey: m.psk,
		Stock: m.stock, Managed: !m.stock, AllowedIPs: m.allowedIPs,
	}
	if !m.stock { // The path finder says where to send, and its probes keep the path open.
		return c
	}
	if c.Endpoints = m.endpoints(proven(m.key)); len(c.Endpoints) > 0 {
		c.Keepalive = keepalive
	}
	return c
}

// succeeded reports whether the member, whose key is gone, is there in next with the key that
// it announced, or that its configuration gives it now.
func (m *member) succeeded(next *roster) bool {
	now := next.byName[m.name]
	return now != nil && (!m.nextKey.IsZero() && now.key == m.nextKey || m.fromFile && now.fromFile)
}

// roster is who may use the tunnel at one moment. It is immutable.
type roster struct {
	own     peer.PublicKey // this gateway's
	members []*member      // sorted by name
	byName  map[string]*member
	byKey   map[peer.PublicKey]*member
	byAddr  map[netip.Addr]*member // overlay addresses, those of next keys too
	// next are the members that announced a key, by that key.
	next    map[peer.PublicKey]*member
	oneTime map[netip.Addr]ticket.OneTime
}

// makeRoster brings together the peers of the file, those that joined and the keys of
// the open tickets.
func makeRoster(own peer.PublicKey, file []config.Peer, joined state.Peers, oneTime []ticket.OneTime) (*roster, error) {
	n := len(file) + joined.Len()
	r := &roster{
		own:     own,
		members: make([]*member, 0, n), byName: make(map[string]*member, n), byKey: make(map[peer.PublicKey]*member, n),
		byAddr: make(map[netip.Addr]*member, n), next: map[peer.PublicKey]*member{}, oneTime: map[netip.Addr]ticket.OneTime{},
	}
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
				errConflict, other.name, p.Name, p.PublicKey)
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
	r.announced(own)
	slices.SortFunc(r.members, func(a, b *member) int { return cmp.Compare(a.name, b.name) })
	return r, nil
}

func (r *roster) add(m *member) {
	r.members = append(r.members, m)
	r.byName[m.name], r.byKey[m.key] = m, m
	if a := m.address(); a.IsValid() {
		r.byAddr[a] = m
	}
}

// announced adds the keys that members said they will have. One that is somebody's already
// stays his.
func (r *roster) announced(own peer.PublicKey) {
	for _, m := range r.members {
		k := m.nextKey
		if k.IsZero() || m.pending || k == own || r.byKey[k] != nil {
			continue
		}
		a := peer.OverlayAddr(k)
		if _, oneTime := r.oneTime[a]; !oneTime {
			r.next[k], r.byAddr[a] = m, m
		}
	}
}

func fileMember(p config.Peer) *member {
	m := &member{
		name: p.Name, identity: p.Name, key: p.PublicKey, overlay: peer.OverlayAddr(p.PublicKey), psk: p.PresharedKey, mode: cmp.Or(p.Mode, api.ModeInBand), allow: p.Allow,
		stock: p.Stock, allowedIPs: p.AllowedIPs, fromFile: true, local: map[string]string{}, names: p.EndpointNames,
		direct: p.Direct,
	}
	for service, a := range p.Local {
		m.local[service] = a.String()
	}
	for _, e := range p.Endpoints {
		m.candidates = append(m.candidates, ticket.Candidate{Addr: e, Source: api.SourceAdvertised})
	}
	return m
}

// supplement adds what only the state directory knows of a peer that the file names by
// the same key: what was agreed when it joined, without which the two could not meet.
func (m *member) supplement(p state.Peer) {
	if m.psk.IsZero() {
		m.psk = p.PresharedKey
	}
	m.learn(p)
}

// learn takes the candidates of a peer that joined: by our ticket it told them itself, by
// its own its ticket did.
func (m *member) learn(p state.Peer) {
	if p.Origin == state.OriginInvited {
		m.announced = append(m.announced, p.Candidates...)
	} else {
		m.candidates = append(m.candidates, p.Candidates...)
	}
}

// known are all addresses of the peer.
func (m *member) known() []ticket.Candidate { return slices.Concat(m.candidates, m.announced) }

// joinedMember has a local listener for the peer's API server even if nobody asked for
// one, since that is what most peers are joined for.
func joinedMember(own peer.PublicKey, p state.Peer) *member {
	if p.RekeyFor == own {
		p.PresharedKey = p.RekeyPSK
	}
	m := &member{
		name: p.Name, identity: cmp.Or(p.Identity, p.Name), key: p.PublicKey, overlay: peer.OverlayAddr(p.PublicKey), psk: p.PresharedKey, mode: cmp.Or(p.Mode, api.ModeInBand),
		allow: p.Allow, stock: p.Stock, allowedIPs: p.AllowedIPs, pending: p.Pending, origin: p.Origin,
		local: maps.Clone(p.Local), since: p.JoinedAt, nextKey: p.NextKey, nextPSK: p.NextPresharedKey,
		former: p.FormerKeys, ticket: p.Ticket,
	}
	m.learn(p)
	if m.local == nil {
		m.local = map[string]string{}
	}
	for _, e := range p.Endpoints {
		if a, err := netip.ParseAddrPort(e); err == nil {
			m.candidates = append(m.candidates, ticket.Candidate{Addr: a, Source: api.SourceAdvertised})
		} else {
			m.names = append(m.names, e)
		}
	}
	if address, told := m.local[api.ServiceAPIServer]; address == noListener {
		delete(m.local, api.ServiceAPIServer)
	} else if !told && !m.stock {
		m.local[api.ServiceAPIServer] = ""
	}
	return m
}

// keepsOptions reports whether the file has options for a peer of this name that joins
// by ticket. Only an operator gives them to somebody: see names.Reserve and planJoin.
func keepsOptions(cfg *config.Resolved, name string) bool {
	return slices.ContainsFunc(cfg.Peers, func(p config.Peer) bool { return p.Name == name && p.PublicKey.IsZero() })
}

// override applies what the file says of a peer that joins by ticket.
func (m *member) override(o config.Peer) {
	if len(o.Allow) > 0 || o.Joined {
		m.allow, m.fileAllows = o.Allow, true
	}
	for service, a := range o.Local {
		m.local[service] = a.String()
	}
	first := make([]ticket.Candidate, 0, len(o.Endpoints)+len(m.candidates))
	for _, e := range o.Endpoints {
		first = append(first, ticket.Candidate{Addr: e, Source: api.SourceAdvertised})
	}
	m.candidates = append(first, m.candidates...)
	m.names = append(slices.Clone(o.EndpointNames), m.names...)
	m.direct, m.mode = o.Direct, cmp.Or(o.Mode, m.mode)
}

// peers are the roster in the tunnel's terms. A peer that waits for approval is none.
func (r *roster) peers(proven func(peer.PublicKey) []netip.AddrPort) []peer.Config {
	out := make([]peer.Config, 0, len(r.members)+len(r.oneTime))
	for _, m := range r.members {
		if !m.pending {
			out = append(out, m.tunnel(proven))
		}
	}
	for key, m := range r.next {
		// It dials us, and is a peer like any other from the first handshake.
		out = append(out, peer.Config{Name: nextName(m), PublicKey: key, PresharedKey: m.nextPSK, Managed: true})
	}
	for _, o := range r.oneTime {
		if o.PublicKey == r.own || r.byKey[o.PublicKey] != nil {
			continue // by a state directory that contradicts itself: who has a key comes first
		}
		out = append(out, peer.Config{
			// Managed, though nobody chooses a path: that of the last handshake is taken,
			// and answers go to every copy of an initiation when those before got lost.
			Name: oneTimeName(o), PublicKey: o.PublicKey, PresharedKey: o.PresharedKey, Managed: true,
		})
	}
	slices.SortFunc(out, func(a, b peer.Config) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// nextName cannot be a peer's: it is no DNS label.
func nextName(m *member) string { return m.name + ":next" }

// oneTimeName cannot be a peer's: it is no DNS label.
func oneTimeName(o ticket.OneTime) string { return "ticket:" + o.Ticket.String() }

// resolve says whose an inner address is.
func (r *roster) resolve(a netip.Addr) (forward.Peer, bool) {
	if m := r.find(a); m != nil {
		return forward.Peer{Name: m.name, Mute: m.stock && !auth.Serves(auth.KindStock)}, true
	}
	if o, ok := r.oneTime[a]; ok {
		return forward.Peer{Name: oneTimeName(o), OneTime: true}, true
	}
	if m := r.byAddr[a]; m != nil { // it waits for approval
		return forward.Peer{Name: m.name}, false
	}
	return forward.Peer{}, false
}

// find is the member that may send from the address; nil when there is none.
func (r *roster) find(a netip.Addr) *member {
	if m := r.byAddr[a]; m != nil {
		if m.pending {
			return nil
		}
		return m
	}
	for _, m := range r.members {
		if m.stock && slices.ContainsFunc(m.allowedIPs, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return m
		}
	}
	return nil
}

// allowed is the policy of services other than auth.
func (r *roster) allowed(p forward.Peer, service string) bool {
	m := r.byName[p.Name]
	return !p.OneTime && m != nil && !m.pending && m.allows(service)
}

// without are the members that next does not have, by name and key.
func (r *roster) without(next *roster) []*member {
	var out []*member
	for _, m := range r.members {
		if now := next.byName[m.name]; now == nil || now.key != m.key {
			out = append(out, m)
		}
	}
	return out
}

// hasOther reports whether the one-time peers are others than these.
func (r *roster) hasOther(list []ticket.OneTime) bool {
	for _, o := range list {
		if _, ok := r.oneTime[peer.OverlayAddr(o.PublicKey)]; !ok {
			return true
		}
	}
	return len(list) != len(r.oneTime)
}

// names of the members that are in the tunnel.
func (r *roster) names() []string {
	var out []string
	for _, m := range r.members {
		if !m.pending {
			out = append(out, m.name)
		}
	}
	return out
}
