package check

import (
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/discovery/special"
)

// nowhere reports whether no network routes a scope to another host.
func nowhere(scope string) bool {
	return scope == "loopback" || scope == "link-local" || scope == "no address of a host"
}

// global reports whether an address is the same host for everyone, and so reveals nothing about
// this gateway's surroundings.
func global(address string) bool {
	a, ok := special.Host(address)
	return ok && special.Global(a)
}

// in reports whether an address is in one of the networks.
func in(networks []netip.Prefix, address string) bool {
	a, ok := special.Host(address)
	return ok && slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Masked().Contains(a) })
}

// way is whether an address may be dialled from outside its network.
type way int

const (
	wayUnknown way = iota
	wayOpen
	wayShut
)

// wayTo judges a candidate behind a NAT, for someone in the given networks.
//
//	source                              scope     NAT                         way
//	any but relay                       nowhere   any                         shut
//	any but relay                       private   any                         shut, but for its own network
//	relay                               any       any                         open
//	advertised, service, portmap, dns   global    any                         open: the operator or router says so
//	host                                global    none, not known             open
//	stun, peer                          global    none                        open
//	stun, peer                          global    maps and filters for all    open
//	stun, peer                          global    filters, or maps by target  shut
//	stun, peer                          global    not known                   not known
func wayTo(c catalogue.Candidate, nat catalogue.NAT, networks []netip.Prefix) way {
	s := special.Scope(c.Address)
	switch {
	case c.Source == api.SourceRelay || c.Relay != "":
		return wayOpen
	case nowhere(s):
		return wayShut
	case s != "" && in(networks, c.Address):
		return wayOpen
	case s != "":
		return wayShut
	case c.Source != api.SourceSTUN && c.Source != api.SourcePeer:
		return wayOpen
	}
	const all, none = "endpoint-independent", "none"
	switch {
	case nat.Mapping == none:
		return wayOpen
	case unknownNAT(nat.Mapping):
		return wayUnknown
	case nat.Mapping != all:
		return wayShut
	case unknownNAT(nat.Filtering):
		return wayUnknown
	case nat.Filtering == all || nat.Filtering == none:
		return wayOpen
	}
	return wayShut
}

func unknownNAT(behaviour string) bool { return behaviour == "" || behaviour == "unknown" }

// best returns the best of the candidates' ways: open before unknown before shut.
func best(candidates []catalogue.Candidate, nat catalogue.NAT, networks []netip.Prefix) way {
	found := wayShut
	for _, c := range candidates {
		switch wayTo(c, nat, networks) {
		case wayOpen:
			return wayOpen
		case wayUnknown:
			found = wayUnknown
		}
	}
	return found
}

// wayIn is whether a stranger can dial this gateway; unknown if nothing is known about it.
func (o *Own) wayIn() way {
	if o == nil || len(o.Candidates) == 0 && unknownNAT(o.NAT.Mapping) {
		return wayUnknown
	}
	return best(o.Candidates, o.NAT, nil)
}

// symmetric reports whether the NAT uses another mapping for each destination.
func (o *Own) symmetric() bool {
	return o != nil && !unknownNAT(o.NAT.Mapping) && o.NAT.Mapping != "none" && o.NAT.Mapping != "endpoint-independent"
}
