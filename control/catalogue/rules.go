package catalogue

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/discovery/special"
)

// Rules are inserted, not appended: before the one that drops. They are nftables' words
// for the table and chains that its own example configuration has (inet filter; input and
// output), followed by what a cloud's security group asks for.

// rule is what lets packets through: the step that it is written into gets the command, and tells
// in brackets what a security group needs.
type rule struct{ group, command string }

// inRule is the command that lets UDP to a local port in, from one address or, where that is
// not known, from anywhere.
func inRule(port, from string) string {
	source := ""
	if a, ok := special.Host(from); ok {
		source = family(a) + " saddr " + a.String() + " "
	}
	return fmt.Sprintf("nft insert rule inet filter input %sudp dport %s accept", source, port)
}

// inGroup says the same of a security group.
func inGroup(port, from string) string {
	words := "from anywhere"
	if a, ok := special.Host(from); ok {
		words = "from " + prefix(a)
	}
	return fmt.Sprintf("(security group: inbound UDP %s %s)", port, words)
}

func letIn(port, from string) rule { return rule{inGroup(port, from), inRule(port, from)} }

// letOut is the rule that lets UDP to an address out or, of what is no address, all UDP.
func letOut(to string) rule {
	a, err := netip.ParseAddrPort(to)
	if err != nil {
		return rule{"(security group: outbound UDP)", "nft insert rule inet filter output meta l4proto udp accept"}
	}
	host, port := a.Addr().Unmap(), strconv.Itoa(int(a.Port()))
	return rule{fmt.Sprintf("(security group: outbound UDP %s to %s)", port, prefix(host)),
		fmt.Sprintf("nft insert rule inet filter output %s daddr %s udp dport %s accept", family(host), host, port)}
}

// tcpOut and tcpIn let TCP from this machine to an address through, out of here and in there; empty
// for what is no address.
func tcpOut(to string) string {
	a, err := netip.ParseAddrPort(to)
	if err != nil {
		return ""
	}
	host := a.Addr().Unmap()
	return fmt.Sprintf("nft insert rule inet filter output %s daddr %s tcp dport %d accept", family(host), host, a.Port())
}

func tcpIn(to string) string {
	a, err := netip.ParseAddrPort(to)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("nft insert rule inet filter input tcp dport %d accept", a.Port())
}

// LetOutToServer is the rule that lets UDP to the server out, also where its address is not known.
func (v *view) LetOutToServer(port string) rule {
	if _, err := netip.ParseAddrPort(v.Address); err == nil {
		return letOut(v.Address)
	}
	port = or(portOf(v.Server), port)
	return rule{fmt.Sprintf("(security group: outbound UDP %s)", port), fmt.Sprintf("nft insert rule inet filter output udp dport %s accept", port)}
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "ip"
	}
	return "ip6"
}

func prefix(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

// portOf is the port of an address, empty without one.
func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil || strings.Trim(port, "0123456789") != "" {
		return ""
	}
	return port
}

// endpoint is an address to be written into a setting, empty for what is none.
func endpoint(address string) string {
	if _, ok := special.Host(address); !ok {
		return ""
	}
	return address
}
