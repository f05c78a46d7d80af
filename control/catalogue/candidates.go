package catalogue

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/discovery/special"
)

// Relayed reports whether a candidate is reached over a relay.
func (c Candidate) Relayed() bool { return c.Relay != "" || c.Source == api.SourceRelay }

// Shown is what a gateway shows of itself to the outside.
type Shown struct {
	// Port is the one that it listens on.
	Port uint16
	NAT  NAT
	// Candidates are what peers are told to dial, best first; Advertised those of them
	// that the operator configured.
	Candidates []Candidate
	Advertised []string
}

// SeenAs are the addresses by which others know the gateway that anybody may dial.
func (s Shown) SeenAs() []string {
	var out []string
	for _, c := range s.Candidates {
		if c.Source != api.SourceRelay && special.Scope(c.Address) == "" && !slices.Contains(out, c.Address) {
			out = append(out, c.Address)
		}
	}
	return out
}

// Set are those of them that the operator configured.
func (s Shown) Set() []string {
	return slices.DeleteFunc(s.SeenAs(), func(a string) bool { return !slices.Contains(s.Advertised, a) })
}

// Has reports whether peers are told to dial an address.
func (s Shown) Has(address string) bool {
	return slices.Contains(s.Advertised, address) ||
		slices.ContainsFunc(s.Candidates, func(c Candidate) bool { return c.Address == address })
}

// Accounts are the addresses that were tried and what became of each. Where they are known from, and those
// that are not tried, `postern path` shows.
func (v *view) Accounts() string {
	const most = 4
	tried := slices.DeleteFunc(slices.Clone(v.Candidates), func(c Candidate) bool { return c.State == "frozen" })
	var out []string
	for i, c := range tried {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(tried)-most))
			break
		}
		name := c.Address
		if c.Relay != "" {
			name += " via " + c.Relay
		}
		out = append(out, name+" "+or(or(c.Reason, c.State), "did not answer"))
	}
	return strings.Join(out, "; ")
}

// UsedRelay is the relay over which the peer was reached, empty where a direct address is in use.
func (v *view) UsedRelay() string {
	relay := ""
	for _, c := range v.Candidates {
		switch {
		case !c.Relayed() && c.State == "selected":
			return ""
		case c.Relayed() && relay == "" && (c.State == "selected" || c.State == "suspect"):
			relay = or(c.Relay, c.Address)
		}
	}
	return relay
}

// Tried are the accounts or, without any, where UDP was sent to.
func (v *view) Tried() string {
	if a := v.Accounts(); a != "" || len(v.Endpoints) == 0 {
		return a
	}
	return "UDP was sent to " + List(v.Endpoints)
}

// Dialled are the addresses of the peer that are worth a rule: the one that it was heard
// from is behind whatever holds packets back, so what it announces comes first.
func (v *view) Dialled() []string {
	var out []string
	for _, c := range v.Candidates {
		if special.Scope(c.Address) == "" && !c.Relayed() && portOf(c.Address) != "" && !slices.Contains(out, c.Address) {
			out = append(out, c.Address)
		}
	}
	for _, e := range v.Endpoints {
		if len(v.Candidates) == 0 && portOf(e) != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	if len(out) == 0 && v.From != "" {
		out = append(out, v.From)
	}
	return out
}

// Target is the first of them, empty without any.
func (v *view) Target() string { return first(v.Dialled()) }

// OwnAddress is this gateway's address of the same family as another, as others see it.
func (v *view) OwnAddress(other string) string {
	a, ok := special.Host(other)
	for _, o := range v.Own {
		if h, is := special.Host(o); is && (!ok || h.Is4() == a.Is4()) {
			return o
		}
	}
	return ""
}

// CandidatePort is the port of the first candidate, or another.
func (v *view) CandidatePort(otherwise string) string {
	if len(v.Candidates) == 0 {
		return otherwise
	}
	return or(portOf(v.Candidates[0].Address), otherwise)
}

// Addresses are those of the candidates, Scopes the same with why nobody can dial them, and
// NodeAddresses with what was found of each.
func (v *view) Addresses() string { return v.candidates(func(Candidate) string { return "" }) }

func (v *view) Scopes() string {
	return v.candidates(func(c Candidate) string { return or(special.Scope(c.Address), "private") })
}

func (v *view) NodeAddresses() string {
	return v.candidates(func(c Candidate) string { return c.Reason })
}

func (v *view) candidates(note func(Candidate) string) string {
	var out []string
	for _, c := range v.Candidates {
		s := c.Address
		if n := note(c); n != "" {
			s += " (" + n + ")"
		}
		out = append(out, s)
	}
	return List(out)
}
