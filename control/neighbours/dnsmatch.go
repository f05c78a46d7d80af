package neighbours

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery"
	dnssd "github.com/postern-dev/postern/discovery/dns"
	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// sourceDNSProblems is the problem source for DNS discovery.
	sourceDNSProblems = "dns"
	// maxDNSProblems bounds the verdicts on the records of one domain.
	maxDNSProblems = 8
)

// dnsMatch is a gateway found in DNS, and the peer it matches.
type dnsMatch struct {
	dnssd.Instance
	domain string
	// member is the peer with its key or, if moved, the peer it is taken for.
	member *roster.Member
	// moved: the key is not the member's.
	moved bool
}

// matches compares the results with the peers. Our own records are left out.
func (s *dnsSearch) matches(r *roster.Roster) []dnsMatch {
	domains := s.domains()
	if len(domains) == 0 {
		return nil
	}
	had := map[string]*roster.Member{} // by record
	seen := map[*roster.Member]bool{}
	for _, m := range r.Members() {
		for _, record := range s.o.Store.Observed(m.Key).Records {
			had[record], seen[m] = m, true
		}
	}
	var out []dnsMatch
	for _, d := range domains {
		for _, i := range d.Instances {
			if i.Key == s.o.publicKey {
				continue
			}
			m := dnsMatch{Instance: i, domain: d.Name}
			holder := r.Holder(i.Key) // current or announced
			switch known, named := had[i.Record], r.ByName(i.Name.RawUnsafe()); {
			case i.Key.IsZero():
			case holder != nil:
				m.member = holder
			case known != nil: // its record had a peer's key before
				m.member, m.moved = known, true
			case named != nil && !seen[named]: // it has the name of a peer that was found nowhere
				m.member, m.moved = named, true
			}
			out = append(out, m)
		}
	}
	return out
}

// settle matches the results with the peers: it stores where each was found, shows problems, and
// returns the addresses of those found by key.
func (s *dnsSearch) settle(r *roster.Roster) map[peer.PublicKey]paths.Place {
	matches := s.matches(r)
	s.o.SetProblems(sourceDNSProblems, s.problems(matches))
	out := map[peer.PublicKey]paths.Place{}
	records := map[peer.PublicKey][]string{}
	for _, m := range matches {
		if m.member == nil || m.moved {
			continue
		}
		records[m.member.Key] = append(records[m.member.Key], m.Record)
		at := out[m.member.Key]
		if at.Order == nil {
			at.Order = map[netip.AddrPort]uint8{}
		}
		for _, a := range m.Addresses {
			if _, again := at.Order[a.Addr]; !again {
				at.Order[a.Addr] = a.Order
				at.Last = append(at.Last, discovery.Candidate{Addr: a.Addr, Source: discovery.SourceDNS})
			}
		}
		out[m.member.Key] = at
	}
	if err := s.o.Store.FoundAt(records); err != nil {
		s.o.Logger.Warn("failed to store where peers were found in DNS; after a restart, a changed key there will look like a new gateway", "error", err)
	}
	return out
}

// problems returns those of the domains and their records, as own checks.
func (s *dnsSearch) problems(matches []dnsMatch) []check.OwnProblem {
	var out []check.OwnProblem
	add := func(code catalogue.Code, domain string, p catalogue.Params) {
		p.Domain = domain
		out = append(out, check.OwnProblem{Name: sourceDNSProblems, Code: code, Params: p})
	}
	count := map[string]int{}
	for _, d := range s.domains() {
		for _, p := range d.Problems {
			add(dnsCode(p.Kind), d.Name, recordParams(p))
		}
	}
	for _, m := range matches {
		if m.moved {
			var p catalogue.Params
			p.PeerName, p.Record = m.member.Name, m.Record
			p.Known, p.Found = peer.Fingerprint(m.member.Key), peer.Fingerprint(m.Key)
			add(catalogue.KeyMoved, m.domain, p)
			continue
		}
		if len(m.Problems) > 0 && count[m.domain] < maxDNSProblems {
			count[m.domain]++
			add(dnsCode(m.Problems[0].Kind), m.domain, recordParams(m.Problems[0]))
		}
	}
	return out
}

func recordParams(p dnssd.Problem) catalogue.Params {
	out := catalogue.Params{Detail: p.What.String()}
	out.Record = p.Record.String()
	return out
}

func dnsCode(k dnssd.Kind) catalogue.Code {
	switch k {
	case dnssd.Unanswered:
		return catalogue.DomainUnanswered
	case dnssd.Nothing:
		return catalogue.DomainEmpty
	case dnssd.Forged:
		return catalogue.RecordForged
	}
	return catalogue.RecordUnusable
}

// discovered lists the results, for operators to decide on.
func (s *dnsSearch) discovered(r *roster.Roster, now time.Time) []api.Discovered {
	var out []api.Discovered
	for _, m := range s.matches(r) {
		d := api.Discovered{
			Name: m.Name, Source: api.SourceDNS, Domain: m.domain, Addresses: []string{},
			State: api.DiscoveredNew, DNSSEC: dnssecWord(m.DNSSEC),
		}
		if !m.Key.IsZero() {
			d.PublicKey, d.Fingerprint = m.Key.String(), peer.Fingerprint(m.Key)
		}
		for _, a := range m.Addresses {
			d.Addresses = append(d.Addresses, a.Addr.String())
		}
		if !m.SeenAt.IsZero() {
			d.SeenAt, d.AgeSeconds = m.SeenAt.UTC(), now.Sub(m.SeenAt).Seconds()
		}
		if len(m.Problems) > 0 {
			d.Problem, d.Code = foreign.Of(m.Problems[0].String()), string(dnsCode(m.Problems[0].Kind))
		}
		switch {
		case m.moved:
			d.State, d.Peer, d.Code = api.DiscoveredConflict, m.member.Name, string(catalogue.KeyMoved)
			d.Problem = foreign.Of(fmt.Sprintf("peer %s has the key %s here, and that one is kept to", m.member.Name, peer.Fingerprint(m.member.Key)))
		case m.member != nil && m.member.Pending:
			d.State, d.Peer = api.DiscoveredPending, m.member.Name
		case m.member != nil:
			d.State, d.Peer = api.DiscoveredPeer, m.member.Name
		case !m.Usable():
			d.State = api.DiscoveredInvalid
		}
		out = append(out, d)
	}
	return out
}

// discoveryProblems returns those of the domains.
func (s *dnsSearch) discoveryProblems() []api.DiscoveryProblem {
	var out []api.DiscoveryProblem
	for _, d := range s.domains() {
		for _, p := range d.Problems {
			out = append(out, api.DiscoveryProblem{Where: d.Name, Problem: foreign.Of(p.String()), Code: string(dnsCode(p.Kind))})
		}
	}
	return out
}

func dnssecWord(d dnssd.DNSSEC) string {
	switch d {
	case dnssd.Validated:
		return api.DNSSECValidated
	case dnssd.Bogus:
		return api.DNSSECBogus
	}
	return api.DNSSECNone
}

// byName sorts the results.
func byName(list []api.Discovered) {
	slices.SortStableFunc(list, func(a, b api.Discovered) int {
		return cmp.Or(cmp.Compare(a.Name.RawUnsafe(), b.Name.RawUnsafe()), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Domain, b.Domain))
	})
}
