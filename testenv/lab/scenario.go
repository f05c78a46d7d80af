package lab

import (
	"strings"

	"github.com/postern-dev/postern/testenv/simnet"
)

// DefaultScenario is the scenario that a lab plays by default.
const DefaultScenario = "one-nat"

// Scenario is a network with two gateways, and what is shown there.
type Scenario struct {
	Name string
	// Summary says in one line what is between the gateways and what to expect.
	Summary string

	cloud, edge place
	// relay adds a TURN server, which both gateways may use.
	relay bool
	// tested adds a STUN server with the tests of RFC 5780, from which the gateways learn how
	// their NATs filter.
	tested bool
	// transfer adds a transfer to an echo server of cloud.
	transfer bool
	play     func(*Lab) []step
	// fault is the fault to show; nil if there is none.
	fault *fault
}

// Fault reports whether the scenario shows a fault, how both sides find it, and its fix.
func (s Scenario) Fault() bool { return s.fault != nil }

// Before describes the state before the fault is caused; empty without a fault.
func (s Scenario) Before() string {
	switch {
	case s.fault == nil:
		return ""
	case s.fault.slip != nil:
		return "the two do not know each other yet; they will in a moment, and something is wrong then"
	case s.fault.ill:
		return "the two have met; something goes wrong in a moment"
	}
	return "all is well; something goes wrong in a moment"
}

// place is where a gateway is. The zero value is a public address without NAT or firewall.
type place struct {
	// nat is the behaviour of its NAT, and kind the name of that.
	nat  func() simnet.Behaviour
	kind string
	// firewall only lets in answers to outbound traffic.
	firewall bool
	// beside puts it on the other gateway's network, behind the same NAT.
	beside bool
}

var (
	public         = place{}
	firewalled     = place{firewall: true}
	besideEdge     = place{beside: true}
	fullCone       = place{nat: simnet.FullCone, kind: "full-cone NAT"}
	addrRestricted = place{nat: simnet.AddressRestricted, kind: "address-restricted NAT"}
	portRestricted = place{nat: simnet.PortRestricted, kind: "port-restricted NAT"}
	portChanging   = place{nat: simnet.PortChanging, kind: "port-restricted NAT that chooses its ports at random"}
	poisonable     = place{nat: simnet.Poisonable, kind: "port-restricted NAT that unasked datagrams poison"}
	symmetric      = place{nat: simnet.Symmetric, kind: "symmetric NAT"}
)

// Scenarios lists all scenarios in display order, the default first and the faults last.
func Scenarios() []Scenario { return append(networks(), faults()...) }

// networks are the scenarios that show the effects of networks on a peering.
func networks() []Scenario {
	return []Scenario{
		{Name: DefaultScenario, cloud: public, edge: portRestricted, play: (*Lab).demonstration,
			Summary: "cloud is public, edge behind a port-restricted NAT; edge joins with a ticket, API servers both ways"},
		{Name: "full-cone", cloud: fullCone, edge: fullCone, tested: true, transfer: true, play: (*Lab).directFromTheStart,
			Summary: "both behind full-cone NATs, no relay: direct from the start"},
		{Name: "address-restricted", cloud: addrRestricted, edge: addrRestricted, relay: true, tested: true, transfer: true, play: (*Lab).relayThenDirect,
			Summary: "both behind address-restricted NATs: they meet over the relay, then go direct"},
		{Name: "port-restricted-pair", cloud: portRestricted, edge: portRestricted, relay: true, tested: true, transfer: true, play: (*Lab).relayThenDirect,
			Summary: "both behind port-restricted NATs: they meet over the relay, then go direct"},
		{Name: "poisonable-pair", cloud: poisonable, edge: poisonable, relay: true, tested: true, transfer: true, play: (*Lab).orderedPunching,
			Summary: "both behind NATs that an unasked datagram poisons: punched in order, direct"},
		{Name: "symmetric", cloud: symmetric, edge: symmetric, relay: true, tested: true, transfer: true, play: (*Lab).relayStays,
			Summary: "both behind symmetric NATs: the relay stays, and the gateways say why"},
		{Name: "symmetric-port-restricted", cloud: portRestricted, edge: symmetric, relay: true, tested: true, transfer: true, play: (*Lab).relayStays,
			Summary: "a symmetric and a port-restricted NAT: the relay stays, and the gateways say why"},
		{Name: "one-way", cloud: firewalled, edge: public, play: (*Lab).oneWay,
			Summary: "cloud's firewall lets nothing in: edge cannot dial, so cloud accepts a reply and dials; API servers both ways"},
		{Name: "same-nat", cloud: besideEdge, edge: portRestricted, transfer: true, play: (*Lab).sameNetwork,
			Summary: "both on one network behind one NAT: they meet by their own addresses"},
		{Name: "path-lost", cloud: public, edge: portRestricted, relay: true, transfer: true, play: (*Lab).pathLost,
			Summary: "the direct path goes dead under a transfer, later it is fixed: relay, then direct again"},
		{Name: "nat-reboot", cloud: public, edge: portChanging, transfer: true, play: (*Lab).natReboot,
			Summary: "edge's NAT forgets its mappings under a transfer: edge has another port, the transfer goes on"},
		{Name: "restart", cloud: public, edge: portRestricted, transfer: true, play: (*Lab).restart,
			Summary: "cloud's gateway is stopped at once and started again under load: a new session in seconds"},
	}
}

// FindScenario returns a scenario by name.
func FindScenario(name string) (Scenario, bool) {
	for _, s := range Scenarios() {
		if s.Name == name {
			return s, true
		}
	}
	return Scenario{}, false
}

// Network says in one line what is between the gateways.
func (s Scenario) Network() string {
	before := func(p place) string {
		switch {
		case p.nat != nil:
			return "behind a " + p.kind
		case p.firewall:
			return "at a public address, with a firewall that lets in answers alone"
		case p.beside:
			return "beside edge, on the same network"
		default:
			return "at a public address"
		}
	}
	text := "edge " + before(s.edge) + ", cloud " + before(s.cloud)
	if s.cloud.kind != "" && s.cloud.kind == s.edge.kind {
		text = "cloud and edge each " + before(s.cloud)
	}
	if s.relay {
		return text + "; one relay"
	}
	return text + "; no relay"
}

// Real lists what is as in production.
func (s Scenario) Real() string {
	real := "gateways, WireGuard, network stack, tickets, certificates, TLS"
	if s.relay {
		real += ", the relay's TURN server"
	}
	return real
}

// Simulated lists the rest.
func (s Scenario) Simulated() string {
	parts := []string{"the internet"}
	switch {
	case s.cloud.nat != nil && s.edge.nat != nil:
		parts = append(parts, "the NATs")
	case s.cloud.nat != nil || s.edge.nat != nil:
		parts = append(parts, "the NAT")
	}
	if s.cloud.firewall || s.edge.firewall {
		parts = append(parts, "the firewall")
	}
	return strings.Join(parts, ", ") + ", and what stands behind the API endpoints"
}
