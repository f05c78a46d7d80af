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

// Place is where a peer was found, by others than itself.
type Place struct {
	// First are candidates to be tried before those that the peer announces, Last after.
	First, Last []discovery.Candidate
	// Order is that in which addresses are to be tried.
	Order map[netip.AddrPort]uint8
}

// SetPeers has paths found to the members that can be probed.
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
		p.log.Warn("some peers cannot be probed", "error", err)
	}
}

// Receive takes a message of a peer's path finder, and remembers the candidates in it.
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

// dialable are the candidates that may be dialled, the first of them, with sources that
// mean something here: the words are a stranger's.
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

// Remember stores what peers have announced since the last time: not with each message,
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

// announce stores what peers announced that are there, in one write.
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
		p.log.Warn("what peers announce cannot be remembered; after a restart they may have to dial us", "peers", len(all), "error", err)
	}
}

// knownCandidates are where a peer may be, by ticket and configuration, and by where it
// was heard before.
func knownCandidates(m *roster.Member, before state.Observation) []discovery.Candidate {
	var out []discovery.Candidate
	add := func(a netip.AddrPort, source string) {
		// An address may be there by its source and as one that was heard from.
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

// announcedBefore are the candidates that a peer told when it joined, and in an earlier
// run.
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
