package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/portmap"
)

// Snapshot is what an [Agent] knows at one moment.
type Snapshot struct {
	Candidates []Candidate
	NAT        NAT
	// FilteringReason says why NAT.Filtering is unknown; empty if it is known.
	FilteringReason string
	// Servers has an entry for each address of each STUN server, in configuration order, and one
	// for each server whose name was not resolved.
	Servers []Server
	// Services are the addresses that the cluster routes to the gateway.
	Services []ServiceState
	// Problems say why something configured gives no candidate.
	Problems []Problem
	// LeftOut are addresses that were found but are no candidates.
	LeftOut      []LeftOut
	Transactions Transactions
	// PortMapping is the state of the port mapping; nil without one.
	PortMapping *portmap.Status
}

// Server is the state of a STUN server's address.
type Server struct {
	Name       string         // as configured
	Addr       netip.AddrPort // invalid if the name was not resolved
	Mapped     netip.AddrPort // the address it last saw us at; invalid if it never answered
	Agreed     netip.Addr     // the address most others see us at; invalid if they do not agree
	RTT        time.Duration  // of the last answer to a request that was not repeated
	AnsweredAt time.Time
	Err        string // why the last transaction failed; empty if it did not
	Nameless   bool   // no name server answered for its name
	Failures   int    // failed transactions in a row
	// AskedAt is since when the outstanding request has had no answer; zero if there is none.
	AskedAt time.Time
}

// Problem is a reason why a source gives no candidate.
type Problem struct {
	Source string // of the missing candidates
	What   string // the configured text, or empty
	Err    string
}

// LeftOut is an address that is no candidate, and why.
type LeftOut struct {
	Addr   netip.Addr
	Source string // where it was found
	Reason string
}

// Transactions counts finished STUN transactions by result.
type Transactions struct {
	Success uint64
	Timeout uint64
	Error   uint64 // an error response, or an address that cannot be ours
	Unsent  uint64 // the socket rejected the request
}

// snapshot combines the state and the allocations on relays.
func (g *gatherer) snapshot(relays []path.Relay) Snapshot {
	candidates, leftOut := g.candidates(relays)
	return Snapshot{
		Candidates: candidates,
		NAT:        g.nat(),

		FilteringReason: g.filteringReason(),
		Servers:         g.serverStates(),
		Services:        g.serviceStates(),
		Problems:        g.problems(),
		LeftOut:         leftOut,
		Transactions:    g.counts,
		PortMapping:     g.mapping,
	}
}

func (g *gatherer) candidates(relays []path.Relay) ([]Candidate, []LeftOut) {
	var out []Candidate
	var leftOut []LeftOut
	addUnless := func(exclude []netip.Prefix, addr netip.AddrPort, source string) {
		if p, in := within(addr.Addr(), exclude); in {
			l := LeftOut{addr.Addr(), source, fmt.Sprintf("in %v, which means nothing outside this cluster", p)}
			if !slices.Contains(leftOut, l) {
				leftOut = append(leftOut, l)
			}
			return
		}
		out = append(out, Candidate{Addr: addr, Source: source})
	}
	add := func(addr netip.AddrPort, source string) { addUnless(g.exclude, addr, source) }
	for _, n := range g.advertised {
		for _, a := range n.addrPorts() {
			out = append(out, Candidate{Addr: a, Source: SourceAdvertised}) // the operator has the last word
		}
	}
	for _, s := range g.services {
		fit, not := s.serviceAddrs()
		for _, a := range fit {
			add(a, SourceService)
		}
		leftOut = append(leftOut, not...)
	}
	if g.mapping != nil {
		if a, ok := g.mapping.Candidate(); ok {
			add(a, SourcePortmap)
		}
	}
	for _, a := range g.hosts {
		if g.port != 0 && unusable(a) == "" {
			add(netip.AddrPortFrom(a, g.port), SourceHost)
		}
	}
	seen := g.exclude
	if len(g.answers()) == 0 { // nobody sees us elsewhere
		seen = g.nowhere
	}
	for _, s := range g.servers {
		for _, t := range s.targets {
			if t.mapped.IsValid() {
				addUnless(seen, t.mapped, SourceSTUN)
			}
		}
	}
	for _, r := range relays {
		if unusable(r.Addr.Addr()) == "" {
			add(r.Addr, SourceRelay)
		}
	}
	return arrange(out), leftOut
}

// observations returns the answers about the current NAT, without outvoted ones.
func (g *gatherer) observations() []observation {
	all := g.answers()
	return slices.DeleteFunc(slices.Clone(all), func(o observation) bool { _, is := o.outvoted(all); return is })
}

// answers returns the answers of servers that see this gateway from outside, since the last change.
func (g *gatherer) answers() []observation {
	var out []observation
	for _, s := range g.servers {
		for _, t := range s.targets {
			// A server that sees us inside the cluster says nothing about the NAT in front of it.
			_, inside := within(t.mapped.Addr(), g.exclude)
			if t.mapped.IsValid() && !inside && !t.answeredAt.Before(g.changedAt) {
				out = append(out, observation{t.addr, t.mapped})
			}
		}
	}
	return out
}

// own reports whether an address is the gateway's own socket.
func (g *gatherer) own(a netip.AddrPort) bool {
	return a.Port() == g.port && slices.Contains(g.hosts, a.Addr())
}

func (g *gatherer) serverStates() []Server {
	var out []Server
	all := g.answers()
	for _, s := range g.servers {
		for _, t := range s.targets {
			by, _ := observation{t.addr, t.mapped}.outvoted(all)
			out = append(out, Server{
				Name: s.text, Addr: t.addr, Agreed: by, Mapped: t.mapped, RTT: t.rtt,
				AnsweredAt: t.answeredAt, Err: t.err, Failures: t.failures, AskedAt: t.outstanding(),
			})
		}
		if len(s.targets) == 0 {
			out = append(out, Server{Name: s.text, Err: s.err, Nameless: s.silent})
		}
	}
	return out
}

func (g *gatherer) problems() []Problem {
	var out []Problem
	for _, n := range g.advertised {
		if n.err != "" {
			out = append(out, Problem{SourceAdvertised, n.text, n.err})
		}
	}
	for _, s := range g.services {
		if s.err != "" {
			out = append(out, Problem{SourceService, s.text, s.err})
		}
	}
	if router, why := g.mappingProblem(); why != "" {
		out = append(out, Problem{SourcePortmap, router, why})
	}
	if g.hostsErr != "" {
		out = append(out, Problem{SourceHost, "", g.hostsErr})
	}
	for _, s := range g.serverStates() {
		if s.Err != "" {
			out = append(out, Problem{SourceSTUN, s.Name, s.Err})
		}
	}
	return out
}
