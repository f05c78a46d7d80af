package roster

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// keepalive is the interval of WireGuard's persistent keepalive to stock peers that we dial: below
// the 30 s after which Linux forgets an unreplied UDP mapping.
const keepalive = 20 * time.Second

// noListener is stored instead of an address if an operator wants no listener.
const noListener = "none"

// Member is a peer with everything that the gateway needs to know about it, whatever the source. It
// is immutable once it is in a roster.
type Member struct {
	Name string
	// Identity is the name in its user or account at the API server.
	Identity string
	Mode     string
	Stock    bool
	Pending  bool
	// Awaited: it has yet to approve this gateway.
	Awaited  bool
	FromFile bool
	// Labels are the operator's.
	Labels map[string]string
	// Direct says how its services may be checked outside the tunnel.
	Direct check.DirectFacts
	Origin state.Origin
	// Since is when it joined or was added; zero if only the configuration names it.
	Since time.Time
	// Ticket is the ticket by which it joined, if any.
	Ticket string
	Keys
	Places
	Grants
}

// Keys are a member's keys.
type Keys struct {
	Key peer.PublicKey
	PSK peer.PresharedKey
	// NextKey is the one it announced, with its preshared key.
	NextKey peer.PublicKey
	NextPSK peer.PresharedKey
	// Former are its previous keys.
	Former []peer.PublicKey
}

// Places are a member's addresses, in the tunnel and outside.
type Places struct {
	// Overlay is its overlay address, whether it uses it or not.
	Overlay netip.Addr
	// AllowedIPs are those of a stock peer.
	AllowedIPs []netip.Prefix
	// Candidates are those of the ticket or the configuration; Announced are those that the peer
	// announced when it joined, which are dialled only as far as allowed.
	Candidates, Announced []ticket.Candidate
	// Names are endpoints given as host:port, which the path finder resolves.
	Names []string
}

// Grants are what a member may reach here, and where its services are reached.
type Grants struct {
	Allow []string
	// FileAllows says that the file decides what it may reach, although it joined by ticket.
	FileAllows bool
	// Local maps services of the peer to listen addresses; "" means a loopback port.
	Local map[string]string
	// UndoneAt is when these are rolled back unless confirmed; zero: never.
	UndoneAt time.Time
	// Export are the namespaces of this cluster whose services it may have, Import those whose
	// services are imported from it.
	Export, Import mcs.Patterns
}

// AllKeys returns all of the member's current, former and next keys.
func (m *Member) AllKeys() []peer.PublicKey {
	all := append([]peer.PublicKey{m.Key}, m.Former...)
	if !m.NextKey.IsZero() {
		all = append(all, m.NextKey)
	}
	return all
}

// Address returns the overlay address; invalid for a stock peer.
func (m *Member) Address() netip.Addr {
	if m.Stock {
		return netip.Addr{}
	}
	return m.Overlay
}

// has reports whether a stock peer may send from the address.
func (m *Member) has(a netip.Addr) bool {
	return slices.ContainsFunc(m.AllowedIPs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Subject returns the member as issuers know it.
func (m *Member) Subject() auth.Subject {
	return auth.Subject{Name: m.Name, Identity: m.Identity, PublicKey: m.Key}
}

func (m *Member) allows(service string) bool { return slices.Contains(m.Allow, service) }

// Endpoints returns the addresses of the candidates, those proven in an earlier run first.
func (m *Member) Endpoints(proven []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	add := func(a netip.AddrPort) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range proven {
		add(a)
	}
	for _, c := range m.Known() {
		add(c.Addr)
	}
	return out
}

// tunnel returns the member's tunnel configuration; proven returns where it was heard before.
func (m *Member) tunnel(proven func(peer.PublicKey) []netip.AddrPort) peer.Config {
	c := peer.Config{
		Name: m.Name, PublicKey: m.Key, PresharedKey: m.PSK,
		Stock: m.Stock, Managed: !m.Stock, AllowedIPs: m.AllowedIPs,
	}
	if !m.Stock { // the path finder selects the paths, and its probes keep them open
		return c
	}
	if c.Endpoints = m.Endpoints(proven(m.Key)); len(c.Endpoints) > 0 {
		c.Keepalive = keepalive
	}
	return c
}

// Succeeded reports whether the member, whose key is gone, is in next with the key that it
// announced, or that its configuration gives it now.
func (m *Member) Succeeded(next *Roster) bool {
	now := next.byName[m.Name]
	return now != nil && (!m.NextKey.IsZero() && now.Key == m.NextKey || m.FromFile && now.FromFile)
}

// Reconfigured reports whether an operator, or the cluster, has changed since was how the member is
// reached or what it may reach.
func (m *Member) Reconfigured(was *Member) bool {
	return !reflect.DeepEqual(m.configured(), was.configured())
}

// configured returns the part of a member that it cannot change itself.
func (m *Member) configured() any {
	type part struct {
		mode       string
		pending    bool
		direct     check.DirectFacts
		psk        peer.PresharedKey
		allowed    []netip.Prefix
		candidates []ticket.Candidate
		names      []string
		grants     Grants
	}
	p := part{m.Mode, m.Pending, m.Direct, m.PSK, m.AllowedIPs, m.Candidates, m.Names, m.Grants}
	p.grants.UndoneAt = time.Time{}
	return p
}

func fileMember(p config.Peer) *Member {
	m := &Member{
		Name: p.Name, Identity: p.Name, Mode: cmp.Or(p.Mode, api.ModeInBand), Stock: p.Stock, FromFile: true, Labels: p.Labels, Direct: p.Direct,
		Keys:   Keys{Key: p.PublicKey, PSK: p.PresharedKey},
		Places: Places{Overlay: peer.OverlayAddr(p.PublicKey), AllowedIPs: p.AllowedIPs, Names: p.EndpointNames},
		Grants: Grants{Allow: p.Allow, Local: map[string]string{}, Export: p.Export, Import: p.Import},
	}
	for service, a := range p.Local {
		m.Local[service] = a.String()
	}
	for _, e := range p.Endpoints {
		m.Candidates = append(m.Candidates, ticket.Candidate{Addr: e, Source: api.SourceAdvertised})
	}
	return m
}

// supplement adds what only the state directory knows about a peer that the file lists with the
// same key: what was agreed when it joined, which both sides need to connect.
func (m *Member) supplement(p state.Peer) {
	if m.PSK.IsZero() {
		m.PSK = p.PresharedKey
	}
	m.learn(p)
}

// learn adds the candidates of a joined peer: it announced them itself if it redeemed our ticket,
// and its own ticket had them if we redeemed that.
func (m *Member) learn(p state.Peer) {
	if p.Origin == state.OriginInvited {
		m.Announced = append(m.Announced, p.Candidates...)
	} else {
		m.Candidates = append(m.Candidates, p.Candidates...)
	}
}

// Known returns all addresses of the peer.
func (m *Member) Known() []ticket.Candidate { return slices.Concat(m.Candidates, m.Announced) }

// joinedMember adds a local listener for the peer's API server even if nobody asked for one, since
// that is what most peers join for.
func joinedMember(own peer.PublicKey, p state.Peer) *Member {
	if p.RekeyFor == own {
		p.PresharedKey = p.RekeyPSK
	}
	m := &Member{
		Name: p.Name, Identity: cmp.Or(p.Identity, p.Name), Mode: cmp.Or(p.Mode, api.ModeInBand), Stock: p.Stock, Pending: p.Pending, Awaited: p.Awaited,
		Origin: p.Origin, Since: p.JoinedAt, Ticket: p.Ticket,
		Keys:   Keys{Key: p.PublicKey, PSK: p.PresharedKey, NextKey: p.NextKey, NextPSK: p.NextPresharedKey, Former: p.FormerKeys},
		Places: Places{Overlay: peer.OverlayAddr(p.PublicKey), AllowedIPs: p.AllowedIPs},
		Grants: Grants{Allow: p.Allow, Local: maps.Clone(p.Local), UndoneAt: p.Undo.At},
	}
	m.learn(p)
	if m.Local == nil {
		m.Local = map[string]string{}
	}
	for _, e := range p.Endpoints {
		if a, err := netip.ParseAddrPort(e); err == nil {
			m.Candidates = append(m.Candidates, ticket.Candidate{Addr: a, Source: api.SourceAdvertised})
		} else {
			m.Names = append(m.Names, e)
		}
	}
	if address, told := m.Local[api.ServiceAPIServer]; address == noListener {
		delete(m.Local, api.ServiceAPIServer)
	} else if !told && !m.Stock {
		m.Local[api.ServiceAPIServer] = ""
	}
	return m
}

// KeepsOptions reports whether the file has options for a peer of this name that joins by ticket.
// Only an operator may assign such a name: see Registry.Reserve and package enrol.
func KeepsOptions(cfg *config.Resolved, name string) bool {
	return slices.ContainsFunc(cfg.Peers, func(p config.Peer) bool { return p.Name == name && p.PublicKey.IsZero() })
}

// override applies the file's options to a peer that joins by ticket.
func (m *Member) override(o config.Peer) {
	if len(o.Allow) > 0 || o.Joined {
		m.Allow, m.FileAllows = o.Allow, true
	}
	for service, a := range o.Local {
		m.Local[service] = a.String()
	}
	first := make([]ticket.Candidate, 0, len(o.Endpoints)+len(m.Candidates))
	for _, e := range o.Endpoints {
		first = append(first, ticket.Candidate{Addr: e, Source: api.SourceAdvertised})
	}
	m.Candidates = append(first, m.Candidates...)
	m.Names = append(slices.Clone(o.EndpointNames), m.Names...)
	m.Export, m.Import = o.Export, o.Import
	m.Labels, m.Direct, m.Mode = o.Labels, o.Direct, cmp.Or(o.Mode, m.Mode)
}
