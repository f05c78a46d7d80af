package roster

import (
	"cmp"
	"maps"
	"net/netip"
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

// keepalive is the interval of WireGuard's persistent keepalive towards stock peers that
// we dial: below the 30 s after which Linux forgets an unreplied UDP mapping.
const keepalive = 20 * time.Second

// noListener is kept instead of an address when an operator wants none.
const noListener = "none"

// Member is a peer with everything that the gateway must know of it, wherever it came
// from. It is not changed once it is in a roster.
type Member struct {
	Name string
	// Identity is the name in its user or account at the API server.
	Identity string
	Mode     string
	Stock    bool
	Pending  bool
	FromFile bool
	// Labels are the operator's own.
	Labels map[string]string
	// Direct is how its services may be checked outside the tunnel.
	Direct check.DirectFacts
	Origin state.Origin
	// Since is when it joined or was added; zero for one that the configuration alone names.
	Since time.Time
	// Ticket is what it came by, if it did.
	Ticket string
	Keys
	Places
	Grants
}

// Keys are those of a member.
type Keys struct {
	Key peer.PublicKey
	PSK peer.PresharedKey
	// NextKey is what it announced, with its preshared key.
	NextKey peer.PublicKey
	NextPSK peer.PresharedKey
	// Former are the keys that it had before.
	Former []peer.PublicKey
}

// Places are where a member is, in the tunnel and outside.
type Places struct {
	// Overlay is its address there, whether it uses it or not.
	Overlay netip.Addr
	// AllowedIPs are those of a stock peer.
	AllowedIPs []netip.Prefix
	// Candidates are those of the ticket or the configuration, announced those that the peer
	// told of itself when it joined: they are dialled only as far as they may be.
	Candidates, Announced []ticket.Candidate
	// Names are endpoints given as host:port, which the path finder resolves.
	Names []string
}

// Grants are what a member may reach here, and where its services are reached.
type Grants struct {
	Allow []string
	// FileAllows: what it is allowed is what the file says, though it joined by ticket.
	FileAllows bool
	// Local maps services of the peer to listen addresses; "" is a loopback port.
	Local map[string]string
	// UndoneAt is when these are again as they were before, unless that is confirmed; zero: never.
	UndoneAt time.Time
	// Export are the namespaces whose services of this cluster it may have, Import those whose
	// services are taken from it.
	Export, Import mcs.Patterns
}

// AllKeys are all that the member has, had and will have.
func (m *Member) AllKeys() []peer.PublicKey {
	all := append([]peer.PublicKey{m.Key}, m.Former...)
	if !m.NextKey.IsZero() {
		all = append(all, m.NextKey)
	}
	return all
}

// Address is the overlay address; invalid for a stock peer.
func (m *Member) Address() netip.Addr {
	if m.Stock {
		return netip.Addr{}
	}
	return m.Overlay
}

// Subject is the member as issuers know it.
func (m *Member) Subject() auth.Subject {
	return auth.Subject{Name: m.Name, Identity: m.Identity, PublicKey: m.Key}
}

func (m *Member) allows(service string) bool { return slices.Contains(m.Allow, service) }

// Endpoints are the addresses of the candidates, those proven in an earlier run first.
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

// tunnel is the member in the tunnel's terms; proven tells where it was heard from before.
func (m *Member) tunnel(proven func(peer.PublicKey) []netip.AddrPort) peer.Config {
	c := peer.Config{
		Name: m.Name, PublicKey: m.Key, PresharedKey: m.PSK,
		Stock: m.Stock, Managed: !m.Stock, AllowedIPs: m.AllowedIPs,
	}
	if !m.Stock { // The path finder says where to send, and its probes keep the path open.
		return c
	}
	if c.Endpoints = m.Endpoints(proven(m.Key)); len(c.Endpoints) > 0 {
		c.Keepalive = keepalive
	}
	return c
}

// Succeeded reports whether the member, whose key is gone, is there in next with the key that
// it announced, or that its configuration gives it now.
func (m *Member) Succeeded(next *Roster) bool {
	now := next.byName[m.Name]
	return now != nil && (!m.NextKey.IsZero() && now.Key == m.NextKey || m.FromFile && now.FromFile)
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

// supplement adds what only the state directory knows of a peer that the file names by
// the same key: what was agreed when it joined, without which the two could not meet.
func (m *Member) supplement(p state.Peer) {
	if m.PSK.IsZero() {
		m.PSK = p.PresharedKey
	}
	m.learn(p)
}

// learn takes the candidates of a peer that joined: by our ticket it told them itself, by
// its own its ticket did.
func (m *Member) learn(p state.Peer) {
	if p.Origin == state.OriginInvited {
		m.Announced = append(m.Announced, p.Candidates...)
	} else {
		m.Candidates = append(m.Candidates, p.Candidates...)
	}
}

// Known are all addresses of the peer.
func (m *Member) Known() []ticket.Candidate { return slices.Concat(m.Candidates, m.Announced) }

// joinedMember has a local listener for the peer's API server even if nobody asked for
// one, since that is what most peers are joined for.
func joinedMember(own peer.PublicKey, p state.Peer) *Member {
	if p.RekeyFor == own {
		p.PresharedKey = p.RekeyPSK
	}
	m := &Member{
		Name: p.Name, Identity: cmp.Or(p.Identity, p.Name), Mode: cmp.Or(p.Mode, api.ModeInBand), Stock: p.Stock, Pending: p.Pending,
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

// KeepsOptions reports whether the file has options for a peer of this name that joins
// by ticket. Only an operator gives them to somebody: see Registry.Reserve and package enrol.
func KeepsOptions(cfg *config.Resolved, name string) bool {
	return slices.ContainsFunc(cfg.Peers, func(p config.Peer) bool { return p.Name == name && p.PublicKey.IsZero() })
}

// override applies what the file says of a peer that joins by ticket.
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
