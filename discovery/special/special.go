// Package special knows the addresses that are not those of any host on the internet: the
// IANA registries of special-purpose IPv4 and IPv6 addresses (RFC 6890), and the IPv6
// addresses that lead to an IPv4 one.
package special

import (
	"net/netip"
	"slices"
)

// CarrierGrade is the range between a provider's customers and its NAT (RFC 6598).
var CarrierGrade = netip.MustParsePrefix("100.64.0.0/10")

// local are the prefixes that are not globally reachable. Blocks with single exceptions are
// here as a whole.
var local = prefixes(
	"0.0.0.0/8",       // this network (RFC 791)
	"10.0.0.0/8",      // private (RFC 1918)
	"100.64.0.0/10",   // CarrierGrade
	"127.0.0.0/8",     // loopback (RFC 1122)
	"169.254.0.0/16",  // link-local (RFC 3927)
	"172.16.0.0/12",   // private (RFC 1918)
	"192.0.0.0/24",    // IETF protocol assignments (RFC 6890)
	"192.0.2.0/24",    // documentation (RFC 5737)
	"192.88.99.0/24",  // anycast of 6to4 relays (RFC 7526)
	"192.168.0.0/16",  // private (RFC 1918)
	"198.18.0.0/15",   // benchmarking (RFC 2544)
	"198.51.100.0/24", // documentation (RFC 5737)
	"203.0.113.0/24",  // documentation (RFC 5737)
	"224.0.0.0/4",     // multicast (RFC 5771)
	"240.0.0.0/4",     // class E and broadcast (RFC 1112, RFC 919)
	"2001::/23",       // IETF protocol assignments, Teredo among them (RFC 2928)
	"2001:db8::/32",   // documentation (RFC 3849)
	"2002::/16",       // 6to4 (RFC 3056)
	"3fff::/20",       // documentation (RFC 9637)
)

// unicast contains all IPv6 addresses that hosts on the internet may have (RFC 4291 §2.4). All
// others are local or embed IPv4.
var unicast = netip.MustParsePrefix("2000::/3")

// Global reports whether the whole internet routes the address to the same host. That is not so
// if it has a zone or embeds an IPv4 address. IPv4-mapped addresses count as IPv4.
func Global(a netip.Addr) bool {
	a = a.Unmap()
	return (a.Is4() || unicast.Contains(a)) && !slices.ContainsFunc(local, func(p netip.Prefix) bool { return p.Contains(a) })
}

// embeddings are the prefixes whose IPv6 addresses contain an IPv4 address.
var embeddings = []struct {
	in       netip.Prefix
	at       int // byte; none where each network chooses it
	inverted bool
}{
	{in: netip.MustParsePrefix("::/96"), at: 12},                     // IPv4-compatible (RFC 4291 §2.5.5.1)
	{in: netip.MustParsePrefix("::ffff:0:0:0/96"), at: 12},           // IPv4-translated (RFC 2765)
	{in: netip.MustParsePrefix("64:ff9b::/96"), at: 12},              // NAT64 (RFC 6052)
	{in: netip.MustParsePrefix("64:ff9b:1::/48"), at: none},          // NAT64 with a network's own prefix (RFC 8215)
	{in: netip.MustParsePrefix("2001::/32"), at: 4},                  // Teredo's server (RFC 4380)
	{in: netip.MustParsePrefix("2001::/32"), at: 12, inverted: true}, // Teredo's client
	{in: netip.MustParsePrefix("2002::/16"), at: 2},                  // 6to4 (RFC 3056)
}

const none = -1

// Embedded returns the IPv4 addresses to which translators and tunnels may send packets for an
// IPv6 address. The zero Addr stands for one that only the translator's network can determine.
func Embedded(a netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, e := range embeddings {
		switch {
		case !e.in.Contains(a.WithZone("")):
			continue
		case e.at == none:
			out = append(out, netip.Addr{})
			continue
		}
		b := a.As16()
		v4 := [4]byte(b[e.at:])
		if e.inverted {
			for i := range v4 {
				v4[i] = ^v4[i]
			}
		}
		out = append(out, netip.AddrFrom4(v4))
	}
	return out
}

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// metadata are the addresses at which clouds give credentials to their machines and pods.
var metadata = prefixes(
	"169.254.169.254/32",     // most of them
	"169.254.170.0/24",       // ECS and EKS
	"100.100.100.200/32",     // Alibaba Cloud
	"168.63.129.16/32",       // Azure
	"192.0.0.192/32",         // Oracle Cloud
	"fd00:ec2::/32",          // EC2 and EKS
	"fd20:ce::254/128",       // Google Cloud
	"fd00:c1::a9fe:a9fe/128", // Oracle Cloud
	"fd00:42::42/128",        // Scaleway
)

// Metadata reports whether clouds give credentials to their machines and pods at the address.
func Metadata(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(a) })
}
