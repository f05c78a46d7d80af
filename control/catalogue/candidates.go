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

// Shown is what a gateway announces about itself.
type Shown struct {
	// Port is the one that it listens on.
	Port uint16
	NAT  NAT
	// Candidates are the addresses announced to peers, best first; Advertised are those that the
	// operator configured.
	Candidates []Candidate
	Advertised []string
}

// SeenAs returns the gateway's public addresses, which anybody may dial.
func (s Shown) SeenAs() []string {
	var out []string
	for _, c := range s.Candidates {
		if c.Source != api.SourceRelay && special.Scope(c.Address) == "" && !slices.Contains(out, c.Address) {
			out = append(out, c.Address)
		}
	}
	return out
}

// Set returns those of them that the operator configured.
func (s Shown) Set() []string {
	return slices.DeleteFunc(s.SeenAs(), func(a string) bool { return !slices.Contains(s.Advertised, a) })
}

// Has reports whether an address is announced to peers.
func (s Shown) Has(address string) bool {
	return slices.Contains(s.Advertised, address) ||
		slices.ContainsFunc(s.Candidates, func(c Candidate) bool { return c.Address == address })
}

// Accounts returns the addresses that were tried and their results. `postern path` shows their
// sources, and those that are not tried.
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

// UsedRelay returns the relay over which the peer was reached, or "" if a direct address is in use.
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

// Tried returns the accounts or, if there are none, where UDP was sent to.
func (v *view) Tried() string {
	if a := v.Accounts(); a != "" || len(v.Endpoints) == 0 {
		return a
	}
	return "UDP was sent to " + List(v.Endpoints)
}

// Dialled returns the peer's addresses that are worth a rule. The address that it was last seen at
// is the last resort, because it lies beyond whatever drops packets.
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

// Target returns the first of them, or "".
func (v *view) Target() string { return first(v.Dialled()) }

// OwnAddress returns this gateway's address of the same family as another, as others see it.
func (v *view) OwnAddress(other string) string {
	a, ok := special.Host(other)
	for _, o := range v.Own {
		if h, is := special.Host(o); is && (!ok || h.Is4() == a.Is4()) {
			return o
		}
	}
	return ""
}

// SharedHost returns the public address of this gateway if the peer is dialled only there, at other
// ports: then both are behind the same NAT. Otherwise it is empty.
func (v *view) SharedHost() (host string) {
	for _, to := range v.Dialled() {
		a, ok := special.Host(to)
		own, known := special.Host(v.OwnAddress(to))
		if !ok || !known || a != own {
			return ""
		}
		host = a.String()
	}
	if !v.BehindNAT(v.NAT) {
		return ""
	}
	return host
}

// CandidatePort returns the port of the first candidate, or otherwise.
func (v *view) CandidatePort(otherwise string) string {
	if len(v.Candidates) == 0 {
		return otherwise
	}
	return or(portOf(v.Candidates[0].Address), otherwise)
}

// Addresses lists the candidates' addresses, Scopes adds why nobody can dial them, and
// NodeAddresses the result for each.
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
