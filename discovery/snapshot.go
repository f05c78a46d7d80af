package discovery

import (
	"net/netip"
	"slices"
	"time"
)

// Snapshot is what an [Agent] knows at one moment.
type Snapshot struct {
	Candidates []Candidate
	NAT        NAT
	// Servers has an entry for each address of each STUN server, in the order of the
	// configuration, and one for a server whose name was not resolved.
	Servers []Server
	// Problems say why something configured gives no candidate.
	Problems     []Problem
	Transactions Transactions
}

// Server is the state of a STUN server's address.
type Server struct {
	Name       string         // as configured
	Addr       netip.AddrPort // invalid when the name was not resolved
	Mapped     netip.AddrPort // what it last saw us as; invalid when it never answered
	RTT        time.Duration  // of the last answer that was not to a repeated request
	AnsweredAt time.Time
	Err        string // why the last transaction failed; empty when it did not
}

// Problem is a reason for which a source gives no candidate.
type Problem struct {
	Source string // of the candidates that are missing
	What   string // the configured text, or empty
	Err    string
}

// Transactions count finished STUN transactions by result.
type Transactions struct {
	Success uint64
	Timeout uint64
	Error   uint64 // an error response, or an address that cannot be ours
	Unsent  uint64 // the socket refused the request
}

// snapshot sums up the state.
func (g *gatherer) snapshot() Snapshot {
	return Snapshot{
		Candidates:   g.candidates(),
		NAT:          classify(g.observations(), g.own),
		Servers:      g.serverStates(),
		Problems:     g.problems(),
		Transactions: g.counts,
	}
}

func (g *gatherer) candidates() []Candidate {
	var out []Candidate
	for _, n := range g.advertised {
		for _, a := range n.addrPorts() {
			out = append(out, Candidate{a, SourceAdvertised})
		}
	}
	for _, a := range g.hosts {
		if g.port != 0 && unusable(a) == "" {
			out = append(out, Candidate{netip.AddrPortFrom(a, g.port), SourceHost})
		}
	}
	for _, s := range g.servers {
		for _, t := range s.targets {
			if t.mapped.IsValid() {
				out = append(out, Candidate{t.mapped, SourceSTUN})
			}
		}
	}
	return arrange(out)
}

// observations are the answers that tell of the NAT as it is now.
func (g *gatherer) observations() []observation {
	var out []observation
	for _, s := range g.servers {
		for _, t := range s.targets {
			if t.mapped.IsValid() && !t.answeredAt.Before(g.changedAt) {
				out = append(out, observation{t.addr, t.mapped})
			}
		}
	}
	return out
}

// own says whether an address is the gateway's socket itself.
func (g *gatherer) own(a netip.AddrPort) bool {
	return a.Port() == g.port && slices.Contains(g.hosts, a.Addr())
}

func (g *gatherer) serverStates() []Server {
	var out []Server
	for _, s := range g.servers {
		for _, t := range s.targets {
			out = append(out, Server{
				Name: s.text, Addr: t.addr, Mapped: t.mapped, RTT: t.rtt,
				AnsweredAt: t.answeredAt, Err: t.err,
			})
		}
		if len(s.targets) == 0 {
			out = append(out, Server{Name: s.text, Err: s.err})
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
