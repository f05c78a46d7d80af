package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/discovery/special"
)

// Hints explain in plain words what the NAT and the addresses found mean for peering and, if
// something can be fixed, how. The same snapshot gives the same hints, most important first. relays
// are the configured TURN servers with their state.
func Hints(s Snapshot, relays ...RelayState) []string {
	f := newFacts(s, relays)
	var out []string
	for _, hint := range []func(facts) string{
		hintServers, hintRouter, hintMapping, hintPool, hintFiltering, hintCarrier, hintPrivate, hintAdvertised,
	} {
		if h := hint(f); h != "" {
			out = append(out, h)
		}
	}
	return out
}

// RelayState is the state of a configured TURN server.
type RelayState struct {
	Address   string // as configured
	Allocated bool   // it has an allocation for us
}

// facts are the input of the hints.
type facts struct {
	Snapshot
	answering  int      // addresses of STUN servers that answer
	relayed    bool     // there is an allocation
	failing    []string // configured TURN servers that give none
	unresolved []string // names of STUN servers without an address
	advertised []string // private ones among the advertised addresses
	reachable  bool     // by configuration: a public address is advertised, a Service or a mapped port
	public     bool     // some host address is global
	pod        bool     // the host's address belongs to the cluster
}

func newFacts(s Snapshot, relays []RelayState) facts {
	f := facts{Snapshot: s}
	for _, r := range relays {
		if !r.Allocated {
			f.failing = append(f.failing, r.Address)
		}
	}
	for _, server := range s.Servers {
		if !server.Addr.IsValid() && server.Err != "" {
			f.unresolved = append(f.unresolved, server.Name)
		}
		if server.Mapped.IsValid() && server.Err == "" {
			f.answering++
		}
	}
	for _, c := range s.Candidates {
		switch local := local(c.Addr.Addr()); c.Source {
		case SourceAdvertised:
			if local {
				f.advertised = append(f.advertised, c.Addr.String())
			}
			f.reachable = f.reachable || !local
		case SourceService, SourcePortmap:
			f.reachable = f.reachable || !local
		case SourceHost:
			f.public = f.public || !local
		case SourceRelay:
			f.relayed = true
		}
	}
	f.pod = slices.ContainsFunc(s.LeftOut, func(l LeftOut) bool { return l.Source == SourceHost })
	return f
}

// local reports whether an address means nothing beyond its network: private (RFC 1918, RFC 4193),
// carrier-grade NAT (RFC 6598) or unusable.
func local(a netip.Addr) bool {
	return a.IsPrivate() || special.CarrierGrade.Contains(a) || unusable(a) != ""
}

// fixByRelay says how to get an allocation.
func (f facts) fixByRelay() string {
	switch len(f.failing) {
	case 0:
		return "set spec.discovery.turnServers"
	case 1:
		return "fix the TURN server above (" + f.failing[0] + ")"
	}
	return "fix the TURN servers above (" + strings.Join(f.failing, ", ") + ")"
}

const fixByPort = "give this gateway a reachable port (a port forward, a NodePort or LoadBalancer Service) and name it in spec.discovery.advertise"

func hintServers(f facts) string {
	switch {
	case len(f.Servers) == 0:
		return "no STUN server is configured, so the public address and the NAT are not known: name two in spec.discovery.stunServers"
	case len(f.unresolved) == len(f.Servers):
		return "the STUN servers' names cannot be resolved (" + strings.Join(f.unresolved, ", ") +
			"), so the public address and the NAT are not known: correct spec.discovery.stunServers or this gateway's DNS"
	case f.answering == 0 && f.relayed:
		return "no STUN server answers: if UDP out of this network is blocked, peers are reached over the relay only"
	case f.answering == 0:
		return "no STUN server answers: if UDP out of this network is blocked, peers are reached over a relay by TCP or TLS only: " + f.fixByRelay()
	case f.NAT.Mapping == BehaviourUnknown && len(f.unresolved) > 0:
		return "the NAT's mapping is not known: it takes answers from STUN servers at two different addresses, and " +
			strings.Join(f.unresolved, ", ") + " cannot be resolved: correct it in spec.discovery.stunServers"
	case f.NAT.Mapping == BehaviourUnknown:
		return "the NAT's mapping is not known: it takes answers from STUN servers at two different addresses; name another in spec.discovery.stunServers"
	}
	return ""
}

// hintRouter says why the port mapping does not help.
func hintRouter(f facts) string {
	m := f.PortMapping
	if m == nil || m.Err == "" {
		return ""
	}
	switch m.State {
	case portmap.StateFailed:
		return "the router " + m.Router.String() + " maps no port to this gateway (" + m.Err + "): " +
			"allow PCP, NAT-PMP or UPnP there, or forward the UDP port by hand and name it in spec.discovery.advertise"
	case portmap.StateWaiting:
		return "no router can be asked for a port: " + m.Err
	case portmap.StateUseless:
		return "the router's port mapping is of no use: " + m.Err
	case portmap.StateAsking, portmap.StateMapped:
	}
	return ""
}

func hintMapping(f facts) string {
	if !endpointDependent(f.NAT.Mapping) || f.reachable {
		return ""
	}
	hint := "every destination sees this gateway come from another port (" + f.NAT.Mapping + " mapping): " +
		"peers behind a port-restricted NAT or one like this are reached over a relay only: "
	if f.relayed {
		hint += "there is one; for direct paths " + fixByPort
	} else {
		hint += f.fixByRelay() + " or " + fixByPort
	}
	if f.pod {
		hint += ". Pods usually leave their node so (MASQUERADE --random-fully): the NAT is the node's, not the site's"
	}
	return hint
}

// hintPool reports several public addresses of one family.
func hintPool(f facts) string {
	v4 := slices.DeleteFunc(slices.Clone(f.NAT.PublicAddresses), func(a netip.Addr) bool { return !a.Is4() || local(a) })
	if len(v4) < 2 {
		return ""
	}
	return fmt.Sprintf("this gateway is seen from %d public addresses (%s): its ways out differ, and what one peer learns of it does not help another",
		len(v4), joined(v4))
}

func hintFiltering(f facts) string {
	if f.reachable {
		return ""
	}
	switch f.NAT.Filtering {
	case FilteringAddress, FilteringAddressAndPort:
	default:
		return ""
	}
	what := "the NAT"
	if f.NAT.Mapping == MappingNone {
		what = "a firewall"
	}
	hint := what + " lets in only those that this gateway has sent to (" + f.NAT.Filtering + " filtering): it dials its peers, and they cannot dial it"
	switch {
	case f.relayed:
		return hint + " but over the relay"
	case f.NAT.Mapping == MappingNone:
		return hint + ": open UDP to the listen port"
	}
	return hint + "; two gateways behind such NATs need a relay to agree upon a direct path: " + f.fixByRelay()
}

func hintCarrier(f facts) string {
	var at []netip.Addr
	for _, c := range f.Candidates {
		if c.Source != SourceAdvertised && special.CarrierGrade.Contains(c.Addr.Addr()) && !slices.Contains(at, c.Addr.Addr()) {
			at = append(at, c.Addr.Addr())
		}
	}
	if len(at) == 0 {
		return ""
	}
	return joined(at) + " is of the range of carrier-grade NAT (100.64.0.0/10): a port forward in a router of one's own does not open the provider's NAT"
}

func hintPrivate(f facts) string {
	switch {
	case f.reachable || f.public || f.relayed:
		return ""
	case f.pod:
		return "this gateway's address is its pod's, which nobody outside the cluster can reach: it dials its peers; to be dialled, " + fixByPort
	case f.answering == 0 && slices.ContainsFunc(f.Candidates, func(c Candidate) bool { return c.Source == SourceHost }):
		return "all addresses of this host are private: peers in other networks cannot dial it; to be dialled, " + fixByPort
	}
	return ""
}

func hintAdvertised(f facts) string {
	if len(f.advertised) == 0 {
		return ""
	}
	return "advertised but private: " + strings.Join(f.advertised, ", ") + ": only peers in the same network can reach that"
}

func joined(addrs []netip.Addr) string {
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}
