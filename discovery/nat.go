package discovery

import (
	"net/netip"
	"slices"
)

// Mapping and filtering behaviour, in RFC 4787's terms.
const (
	MappingNone                = "none" // no NAT: the host's own address is seen
	MappingEndpointIndependent = "endpoint-independent"
	MappingAddress             = "address-dependent"
	MappingAddressAndPort      = "address-and-port-dependent"
	MappingEndpointDependent   = "endpoint-dependent" // one of the two, it is unknown which

	FilteringEndpointIndependent = "endpoint-independent"
	FilteringAddress             = "address-dependent"
	FilteringAddressAndPort      = "address-and-port-dependent"

	BehaviourUnknown = "unknown"
)

// endpointDependent reports whether another destination may see another public port.
func endpointDependent(mapping string) bool {
	switch mapping {
	case MappingAddress, MappingAddressAndPort, MappingEndpointDependent:
		return true
	}
	return false
}

// NAT is what is known about the NAT in front of the gateway.
type NAT struct {
	// Mapping is one of the constants above.
	Mapping string
	// Filtering is one of the constants above. It is unknown unless a STUN server offers the tests
	// of RFC 5780.
	Filtering string
	// Strays reports whether the NAT remembers unsolicited datagrams, so that it can be poisoned:
	// "answers", "drops" ([path.NAT]) or unknown.
	Strays string
	// PublicAddresses are the addresses that STUN servers saw, sorted.
	PublicAddresses []netip.Addr
}

func (n NAT) equal(other NAT) bool {
	return n.Mapping == other.Mapping && n.Filtering == other.Filtering && n.Strays == other.Strays &&
		slices.Equal(n.PublicAddresses, other.PublicAddresses)
}

// observation is one STUN server's answer.
type observation struct {
	server, mapped netip.AddrPort
}

// agreed returns the address at which two or more servers, and most of a family, see this gateway;
// servers at one address count as one.
func agreed(seen []observation, v4 bool) (of netip.Addr) {
	hosts := make(map[netip.Addr]map[netip.Addr]bool)
	for _, o := range seen {
		if a := o.mapped.Addr(); a.Is4() == v4 {
			if hosts[a] == nil {
				hosts[a] = make(map[netip.Addr]bool)
			}
			hosts[a][o.server.Addr()] = true
		}
	}
	most := 1
	for a, by := range hosts {
		switch {
		case len(by) > most:
			of, most = a, len(by)
		case len(by) == most:
			of = netip.Addr{}
		}
	}
	return of
}

// outvoted reports whether an answer has another address than most servers agree on. A NAT may use
// another port for each server, and a host another address on each line; an address that only one
// server sees says nothing about the NAT in front of the others.
func (o observation) outvoted(all []observation) (by netip.Addr, is bool) {
	if !o.mapped.IsValid() {
		return by, false
	}
	by = agreed(all, o.mapped.Addr().Is4())
	return by, by.IsValid() && by != o.mapped.Addr()
}

// classify determines the mapping from what servers saw. IPv4 decides if there is any IPv4 answer,
// since that is the family that is translated.
func classify(seen []observation, own func(netip.AddrPort) bool) NAT {
	nat := NAT{Mapping: BehaviourUnknown, Filtering: BehaviourUnknown, Strays: BehaviourUnknown}
	for _, o := range seen {
		if !slices.Contains(nat.PublicAddresses, o.mapped.Addr()) {
			nat.PublicAddresses = append(nat.PublicAddresses, o.mapped.Addr())
		}
	}
	slices.SortFunc(nat.PublicAddresses, netip.Addr.Compare)
	for _, v4 := range []bool{true, false} {
		var family []observation
		for _, o := range seen {
			if o.mapped.Addr().Is4() == v4 {
				family = append(family, o)
			}
		}
		if len(family) > 0 {
			nat.Mapping = mapping(family, own)
			return nat
		}
	}
	return nat
}

// mapping compares the answers of one family.
func mapping(seen []observation, own func(netip.AddrPort) bool) string {
	same, servers := true, make(map[netip.Addr]bool)
	for _, o := range seen {
		same = same && o.mapped == seen[0].mapped
		servers[o.server.Addr()] = true
	}
	switch {
	case !same:
		return MappingEndpointDependent
	case own(seen[0].mapped):
		return MappingNone
	case len(servers) > 1:
		return MappingEndpointIndependent
	}
	// Servers at one address cannot tell address-dependent from endpoint-independent.
	return BehaviourUnknown
}
