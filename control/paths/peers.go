package paths

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Place is where others than the peer itself found it.
type Place struct {
	// First are candidates to try before the peer's own, Last those to try after.
	First, Last []discovery.Candidate
	// Order is the order in which to try addresses.
	Order map[netip.AddrPort]uint8
}

// SetPeers looks for paths to the members that can be probed.
func (p *Finder) SetPeers(r *roster.Roster, places map[peer.PublicKey]Place) {
	peers := make([]discovery.PathPeer, 0, len(r.Members()))
	for _, m := range r.Members() {
		if m.Stock || m.Pending {
			continue
		}
		at, before := places[m.Key], p.o.Store.Observed(m.Key)
		peers = append(peers, discovery.PathPeer{
			Key: m.Key, PresharedKey: m.PSK, Name: m.Name, Candidates: knownCandidates(m, before), Names: m.Names,
			Announced: slices.Concat(at.First, announcedBefore(m, before), at.Last), Order: at.Order,
		})
	}
	if err := p.finder.SetPeers(peers); err != nil {
		p.log.Warn("cannot probe some peers", "error", err)
	}
}

// Receive handles a path message from a peer and remembers the candidates in it.
func (p *Finder) Receive(k peer.PublicKey, body []byte) error {
	var m path.Message
	if err := bounded.Unmarshal(body, auth.MaxPathMessage, &m); err != nil {
		return err
	}
	if major, _, _ := strings.Cut(m.Version, "."); major != "1" {
		return fmt.Errorf("it is of another version, and this gateway understands %s", path.MessageVersion)
	}
	m.Candidates = p.dialable(m.Candidates)
	p.finder.Receive(k, m)
	p.mail.Spoke(k)
	if m.Candidates != nil {
		p.mu.Lock()
		p.announced[k] = m.Candidates
		p.mu.Unlock()
	}
	return nil
}

// dialable returns the first candidates that may be dialled, with known sources: a stranger wrote
// the list.
func (p *Finder) dialable(list []discovery.Candidate) []discovery.Candidate {
	if list == nil {
		return nil
	}
	own, err := p.o.Host.OwnAddrs()
	forbidden := p.peers.Config().Discovery.Exclude
	out := []discovery.Candidate{}
	for _, c := range list {
		if err != nil || len(out) == maxAnnounced || discovery.Dialable(c.Addr, own, forbidden) != "" {
			continue
		}
		if !path.KnownSource(c.Source) {
			c.Source = discovery.SourceHost
		}
		out = append(out, c)
	}
	return out
}

// Remember stores what peers have announced since the last call. It is not done for each message,
// since a peer may send many and each costs a write.
func (p *Finder) Remember() {
	told := p.takeAnnounced()
	p.peers.LearnAll(func(r *roster.Roster) { p.announce(r, told) })
}

func (p *Finder) takeAnnounced() map[peer.PublicKey][]discovery.Candidate {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.announced
	p.announced = map[peer.PublicKey][]discovery.Candidate{}
	return out
}

// announce stores the announcements of peers that are still there, in one write.
func (p *Finder) announce(r *roster.Roster, told map[peer.PublicKey][]discovery.Candidate) {
	all := make(map[peer.PublicKey][]state.Announced, len(told))
	for k, candidates := range told {
		if r.ByKey(k) == nil {
			continue
		}
		list := make([]state.Announced, 0, len(candidates))
		for _, c := range candidates {
			list = append(list, state.Announced{Address: c.Addr, Source: c.Source})
		}
		all[k] = list
	}
	if err := p.o.Store.AllAnnounced(all); err != nil {
		p.log.Warn("failed to store the candidates that peers announce; after a restart they may have to dial us", "peers", len(all), "error", err)
	}
}

// knownCandidates returns where a peer may be, according to its ticket, the configuration, and
// where it was heard before.
func knownCandidates(m *roster.Member, before state.Observation) []discovery.Candidate {
	var out []discovery.Candidate
	add := func(a netip.AddrPort, source string) {
		// The same address may be known from its source and as one heard from.
		if c := (discovery.Candidate{Addr: a, Source: source}); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	for _, c := range m.Candidates {
		add(c.Addr, c.Source)
	}
	for _, a := range before.Endpoints {
		add(a, discovery.SourcePeer)
	}
	return out
}

// announcedBefore returns the candidates that a peer sent when it joined, and in an earlier run.
func announcedBefore(m *roster.Member, before state.Observation) []discovery.Candidate {
	var out []discovery.Candidate
	for _, a := range before.Announced {
		out = append(out, discovery.Candidate{Addr: a.Address, Source: a.Source})
	}
	for _, c := range m.Announced {
		out = append(out, discovery.Candidate{Addr: c.Addr, Source: c.Source})
	}
	return out
}
