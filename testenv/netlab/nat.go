//go:build linux

package netlab

import (
	"fmt"
	"net/netip"
	"strings"
)

// NATKind is how a router translates UDP, in the terms of RFC 4787. Mapping (§4.1) says whether
// an inside socket has the same outside port for all destinations, filtering (§5) who may send to
// that port.
type NATKind int

// The kinds of NAT. All are nftables rules; all masquerade TCP.
const (
	// FullCone maps endpoint-independently, keeps the port and lets anyone in. This only applies
	// to Inside; other hosts get PortRestricted.
	FullCone NATKind = iota
	// AddressRestricted maps endpoint-independently, keeps the port, and lets in any port of an
	// address that Inside sent to in the last 30 s. This only applies to Inside; other hosts get
	// PortRestricted.
	AddressRestricted
	// PortRestricted maps endpoint-independently, keeps the port if it is free, and only lets in
	// endpoints that were sent to. It drops other packets silently.
	PortRestricted
	// PortRestrictedStray is PortRestricted without a firewall on the router itself. Strays are
	// answered with ICMP "port unreachable" and leave a connection tracking entry. Later packets
	// from the inside to the same remote then leave from another port (a poisoned mapping).
	PortRestrictedStray
	// Symmetric maps address- and port-dependently: a random port for each remote.
	Symmetric
	// PortChanging maps endpoint-independently, to a port of 20000–29999 instead of the inside
	// port, and filters like PortRestricted.
	PortChanging
)

var natNames = map[NATKind]string{
	FullCone:            "full cone",
	AddressRestricted:   "address-restricted",
	PortRestricted:      "port-restricted",
	PortRestrictedStray: "port-restricted, answers strays",
	Symmetric:           "symmetric",
	PortChanging:        "endpoint-independent, port not kept",
}

// String returns the common name of the kind.
func (k NATKind) String() string {
	if s, ok := natNames[k]; ok {
		return s
	}
	return fmt.Sprintf("NATKind(%d)", int(k))
}

// Names of a router's interfaces, and of the table with its rules.
const (
	wanInterface = "w0"
	lanInterface = "l0"
	natTable     = "nat"
)

// NATOptions configure a router between an outer and an inner network.
type NATOptions struct {
	Kind     NATKind
	WAN      *Network
	WANAddr  netip.Addr // IPv4
	LAN      *Network
	LANAddr  netip.Addr // IPv4
	Firewall []string   // further nftables statements for the forward chain, tried first
	// Inside is the UDP socket to which FullCone and AddressRestricted apply; required for these,
	// ignored by others.
	Inside netip.AddrPort
	// Hairpin lets inside hosts reach each other by their outside addresses. What one sends to an
	// outside port goes to the last inside host that used this port, and has the sender's outside
	// address there. Only for kinds that keep the port.
	Hairpin bool
	// UDPTimeout and UDPStreamTimeout are the idle times in seconds after which a mapping without
	// an answer, and one with traffic both ways, expire; 0 means the kernel's 30 and 120.
	UDPTimeout, UDPStreamTimeout int
}

// NAT is a router with network address translation. It counts what crosses its outer interface.
type NAT struct {
	*Host
	// options are those of the current rules. Only the test's own goroutine changes them.
	options NATOptions
}

// NAT creates a router. Hosts of the inner network still need a default route to o.LANAddr.
func (l *Lab) NAT(name string, o NATOptions) *NAT {
	l.t.Helper()
	rules, err := natRules(o)
	if err != nil {
		l.t.Fatalf("netlab: NAT %s: %v", name, err)
	}
	n := &NAT{Host: l.Router(name), options: o}
	// The counters only count IPv4, so the router must have no IPv6.
	n.Sysctl("net.ipv6.conf.all.disable_ipv6", "1")
	n.Sysctl("net.ipv6.conf.default.disable_ipv6", "1")
	n.mustRun(rules, "nft", "-f", "-")
	n.Attach(wanInterface, o.WAN, o.WANAddr)
	n.Attach(lanInterface, o.LAN, o.LANAddr)
	n.SetTimeouts(o.UDPTimeout, o.UDPStreamTimeout)
	return n
}

// natRecipe contains the statements in which the kinds differ.
type natRecipe struct {
	remember string // in postrouting before translation: state for the inbound rules
	snat     string // outbound translation, before the general masquerade
	dnat     string // inbound translation
	inbound  string // in the forward chain: new flows from outside
	open     bool   // whether the router itself answers strays
	flags    string // of the general masquerade
}

func recipe(o NATOptions) (natRecipe, error) {
	inside := o.Inside
	fromInside := fmt.Sprintf("ip saddr %s udp sport %d", inside.Addr(), inside.Port())
	switch o.Kind {
	case FullCone, AddressRestricted:
		if !inside.Addr().Is4() || inside.Port() == 0 {
			return natRecipe{}, fmt.Errorf("%s needs Inside (an IPv4 address and port), got %q", o.Kind, inside)
		}
		r := natRecipe{
			snat:    fmt.Sprintf("%s snat to %s:%d", fromInside, o.WANAddr, inside.Port()),
			dnat:    fmt.Sprintf("udp dport %d dnat to %s", inside.Port(), inside),
			inbound: "ct status dnat accept",
		}
		if o.Kind == AddressRestricted {
			r.remember = fromInside + " update @seen { ip daddr }"
			r.dnat = fmt.Sprintf("udp dport %d ip saddr @seen dnat to %s", inside.Port(), inside)
		}
		return r, nil
	case PortRestricted:
		return natRecipe{}, nil
	case PortRestrictedStray:
		return natRecipe{open: true}, nil
	case Symmetric:
		return natRecipe{flags: "fully-random"}, nil
	case PortChanging:
		return natRecipe{snat: "ip protocol udp masquerade to :20000-29999"}, nil
	default:
		return natRecipe{}, fmt.Errorf("unknown kind %d", int(o.Kind))
	}
}

// hairpin returns the rules that redirect what inside hosts send to the outside address (RFC 4787
// §6). The map contains, for each outside port, the host that last sent from it.
func hairpin(o NATOptions) (natRecipe, error) {
	if !o.Hairpin {
		return natRecipe{}, nil
	}
	if o.Kind == Symmetric || o.Kind == PortChanging {
		return natRecipe{}, fmt.Errorf("there are no rules for a hairpin of kind %s", o.Kind)
	}
	return natRecipe{
		remember: "ip protocol udp update @owner { udp sport : ip saddr }",
		dnat:     fmt.Sprintf("iifname %q ip daddr %s ip protocol udp dnat to udp dport map @owner", lanInterface, o.WANAddr),
		snat:     fmt.Sprintf("iifname %q oifname %q ip protocol udp ct status dnat snat to %s", lanInterface, lanInterface, o.WANAddr),
	}, nil
}

// natRules returns the router's complete rule set.
func natRules(o NATOptions) (string, error) {
	r, err := recipe(o)
	if err != nil {
		return "", err
	}
	h, err := hairpin(o)
	if err != nil {
		return "", err
	}
	out := fmt.Sprintf("oifname %q ", wanInterface)
	in := fmt.Sprintf("iifname %q ", wanInterface)
	stray := "counter name strays drop"
	if r.open {
		stray = "counter name strays accept"
	}
	b := &strings.Builder{}
	line := func(prefix, statement string) {
		if statement != "" {
			fmt.Fprintf(b, "    %s%s\n", prefix, statement)
		}
	}
	fmt.Fprintf(b, "table ip %s {\n  counter strays {}\n%s", natTable, meterCounters())
	fmt.Fprintf(b, "  set seen { type ipv4_addr; flags dynamic,timeout; timeout 30s; }\n")
	fmt.Fprintf(b, "  map owner { type inet_service : ipv4_addr; flags dynamic,timeout; timeout 120s; }\n")
	fmt.Fprintf(b, "%s", meterChains())

	fmt.Fprintf(b, "  chain remember {\n    type filter hook postrouting priority mangle;\n")
	line(out, r.remember)
	line(out, h.remember)
	fmt.Fprintf(b, "  }\n  chain outbound {\n    type nat hook postrouting priority srcnat;\n")
	line("", h.snat)
	line(out, r.snat)
	line(out, strings.TrimSpace("masquerade "+r.flags))
	fmt.Fprintf(b, "  }\n  chain inbound {\n    type nat hook prerouting priority dstnat;\n")
	line(in, r.dnat)
	line("", h.dnat)
	fmt.Fprintf(b, "  }\n  chain forward {\n    type filter hook forward priority filter;\n")
	for _, s := range o.Firewall {
		line("", s)
	}
	line(in, "ct state established,related accept")
	line(in, r.inbound)
	line(in, "counter name strays drop")
	fmt.Fprintf(b, "  }\n  chain self {\n    type filter hook input priority filter;\n")
	line(in, "ct state established,related accept")
	line(in, stray)
	fmt.Fprintf(b, "  }\n}\n")
	return b.String(), nil
}
