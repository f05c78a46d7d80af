package predict

import (
	"slices"

	"github.com/postern-dev/postern/control/api"
)

// FromStatus is what a gateway shows of its own exposure. Of auth and the API server it
// shows nothing: out-of-band stays conditional.
func FromStatus(s api.Status) Exposure {
	e := FromCandidates(s.Gateway.Name, s.Gateway.Candidates)
	e.Gateway.NAT = NAT{Mapping: s.Gateway.NAT.Mapping, Filtering: s.Gateway.NAT.Filtering}
	return e
}

// FromNetCheck is what a gateway found of the network around it.
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

// FromCandidates is what the addresses in a ticket, or in a Status, say of a gateway. An
// address that the operator or a Service announces is taken to lead to it; one that was
// only seen from outside says that there is a NAT, and not how it behaves.
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

// expose notes an address that is meant to be dialled, before those that just are there.
func (e *Exposure) expose(how, address string) {
	if e.Gateway.Exposure == "" || scopeOf(address) == anywhere {
		e.Gateway.Exposure = how
	}
	e.Gateway.Addresses = slices.Insert(e.Gateway.Addresses, 0, address)
}
