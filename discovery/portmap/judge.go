package portmap

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postern-dev/postern/discovery/special"
)

// verdict is the result of comparing a mapping with an observation.
type verdict uint8

const (
	usable       verdict = iota
	behindNAT            // the router's own address is private
	impossible           // no host can have the external address
	contradicted         // STUN servers see another public address
	dead                 // nothing comes through
)

// judge compares a mapping's external address with what STUN servers see. The reason is for
// people; empty if the mapping is usable.
func judge(external netip.AddrPort, o Observation) (verdict, Proof, string) {
	a := external.Addr()
	switch {
	case !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
		external.Port() == 0 || a.Is4() && a.As4()[0] >= 240 || a.Is4() && a.As4()[0] == 0:
		return impossible, ProofNone, fmt.Sprintf("the router says that the mapping is at %v, where nothing can be", external)
	case a.IsPrivate() || special.CarrierGrade.Contains(a):
		return behindNAT, ProofNone, fmt.Sprintf("the router's own address %v is private: there is another NAT before it "+
			"(have that one forward the port, ask the provider for a public address, or set spec.discovery.turnServers)", a)
	}
	var family []netip.AddrPort
	for _, p := range o.Public {
		if p.Addr().Is4() == a.Is4() {
			family = append(family, p)
		}
	}
	exact := slices.Contains(family, external)
	switch {
	case len(family) == 0:
		return usable, ProofNone, ""
	case exact && o.Inbound == InboundOpen:
		return usable, ProofInbound, ""
	case exact && o.Inbound == InboundShut:
		return dead, ProofNone, fmt.Sprintf("the router lists %v, but nothing from outside comes through "+
			"(a firewall of the router or the provider; forward the UDP port there)", external)
	case exact:
		return usable, ProofSTUN, ""
	case slices.ContainsFunc(family, func(p netip.AddrPort) bool { return p.Addr() == a }):
		return usable, ProofAddress, ""
	}
	return contradicted, ProofNone, fmt.Sprintf("the router says that its address is %v, but STUN servers see this gateway at %s: "+
		"there is another NAT before it, or another way out", a, addrsText(family))
}

func addrsText(list []netip.AddrPort) string {
	var texts []string
	for _, p := range list {
		if t := p.Addr().String(); !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, ", ")
}
