package catalogue

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/discovery/special"
)

// Rules are inserted, not appended, to come before the one that drops. They use nftables' syntax,
// with the table and chains of its example configuration (inet filter; input and output), followed
// by what a cloud's security group needs.

// rule lets packets through. The step that contains it gets the command, and names in brackets what
// a security group needs.
type rule struct{ group, command string }

// inRule returns the command that lets UDP to a local port in, from one address or, if that is
// unknown, from anywhere.
func inRule(port, from string) string {
	source := ""
	if a, ok := special.Host(from); ok {
		source = family(a) + " saddr " + a.String() + " "
	}
	return fmt.Sprintf("nft insert rule inet filter input %sudp dport %s accept", source, port)
}

// inGroup returns the same for a security group.
func inGroup(port, from string) string {
	words := "from anywhere"
	if a, ok := special.Host(from); ok {
		words = "from " + prefix(a)
	}
	return fmt.Sprintf("(security group: inbound UDP %s %s)", port, words)
}

func letIn(port, from string) rule { return rule{inGroup(port, from), inRule(port, from)} }

// letOut returns the rule that lets UDP to an address out or, if it is no address, all UDP.
func letOut(to string) rule {
	a, err := netip.ParseAddrPort(to)
	if err != nil {
		return rule{"(security group: outbound UDP)", "nft insert rule inet filter output meta l4proto udp accept"}
	}
	host, port := a.Addr().Unmap(), strconv.Itoa(int(a.Port()))
	return rule{fmt.Sprintf("(security group: outbound UDP %s to %s)", port, prefix(host)),
		fmt.Sprintf("nft insert rule inet filter output %s daddr %s udp dport %s accept", family(host), host, port)}
}

// tcpOut and tcpIn return the commands that let TCP from this machine to an address out here and in
// there; empty if it is no address.
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

// LetOutToServer returns the rule that lets UDP to the server out, even if its address is unknown.
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

// portOf returns the port of an address, or "".
func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil || strings.Trim(port, "0123456789") != "" {
		return ""
	}
	return port
}

// endpoint returns an address to be written into a setting, or "" if it is none.
func endpoint(address string) string {
	if _, ok := special.Host(address); !ok {
		return ""
	}
	return address
}
