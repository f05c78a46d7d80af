package predict

import (
	"slices"

	"github.com/postern-dev/postern/control/api"
)

// FromStatus returns a gateway's exposure according to its status. A status says nothing about how
// auth and the API server are exposed, so out-of-band stays conditional.
func FromStatus(s api.Status) Exposure {
	e := FromCandidates(s.Gateway.Name, s.Gateway.Candidates)
	e.Gateway.NAT = NAT{Mapping: s.Gateway.NAT.Mapping, Filtering: s.Gateway.NAT.Filtering}
	return e
}

// FromNetCheck returns a gateway's exposure according to its network check.
func FromNetCheck(name string, n api.NetCheck) Exposure {
	e := Exposure{Name: name, Gateway: Gateway{NAT: NAT{Mapping: n.Mapping, Filtering: n.Filtering}}}
	if n.Mapping == "none" {
		e.Gateway.Addresses = slices.Clone(n.PublicAddresses)
	}
	for _, t := range n.TURNServers {
		e.Relay = e.Relay || t.Relayed != ""
	}
	return e
}

// FromCandidates returns a gateway's exposure according to the addresses in a ticket or a Status.
// An address that the operator or a Service announces is assumed to lead to the gateway. One that
// was only seen from outside indicates a NAT, but not its behaviour.
func FromCandidates(name string, candidates []api.Candidate) Exposure {
	e := Exposure{Name: name}
	for _, c := range candidates {
		switch c.Source {
		case api.SourceAdvertised, api.SourcePortmap, api.SourceDNS:
			e.expose(PortForwarding, c.Address)
		case api.SourceService:
			e.expose(LoadBalancer, c.Address)
		case api.SourceHost:
			e.Gateway.Addresses = append(e.Gateway.Addresses, c.Address)
			if scopeOf(c.Address) == anywhere { // a public address of its own
				e.Gateway.NAT.Mapping = "none"
			}
		case api.SourceRelay:
			e.Relay = true
		}
	}
	return e
}

// expose adds an address that is meant to be dialled, before others.
func (e *Exposure) expose(how, address string) {
	if e.Gateway.Exposure == "" || scopeOf(address) == anywhere {
		e.Gateway.Exposure = how
	}
	e.Gateway.Addresses = slices.Insert(e.Gateway.Addresses, 0, address)
}
