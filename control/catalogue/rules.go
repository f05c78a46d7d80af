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

// inRule is the rule that lets UDP to a local port in, from one address or, where that is
// not known, from anywhere.
func inRule(port, from string) string {
	source := ""
	if a, ok := special.Host(from); ok {
		source = family(a) + " saddr " + a.String() + " "
	}
	return fmt.Sprintf("nft insert rule inet filter input %sudp dport %s accept", source, port)
}

func letIn(port, from string) string {
	words := "from anywhere"
	if a, ok := special.Host(from); ok {
		words = "from " + prefix(a)
	}
	return fmt.Sprintf("`%s` (security group: inbound UDP %s %s)", inRule(port, from), port, words)
}

// letOut is the rule that lets UDP to an address out; empty for what is no address.
func letOut(to string) string {
	a, err := netip.ParseAddrPort(to)
	if err != nil {
		return ""
	}
	host, port := a.Addr().Unmap(), strconv.Itoa(int(a.Port()))
	return fmt.Sprintf("`nft insert rule inet filter output %s daddr %s udp dport %s accept` (security group: outbound UDP %s to %s)",
		family(host), host, port, port, prefix(host))
}

// letTCP are the rules that let TCP from this machine to an address through, out of here
// and in there; empty for what is no address.
func letTCP(to string) string {
	a, err := netip.ParseAddrPort(to)
	if err != nil {
		return ""
	}
	host := a.Addr().Unmap()
	return fmt.Sprintf(" (`nft insert rule inet filter output %s daddr %s tcp dport %d accept` here, `nft insert rule inet filter input tcp dport %d accept` there)",
		family(host), host, a.Port(), a.Port())
}

// LetOutToServer is the rule that lets UDP to the server out whose address is not known.
func (v *view) LetOutToServer(port string) string {
	port = or(portOf(v.Server), port)
	return fmt.Sprintf("`nft insert rule inet filter output udp dport %s accept` (security group: outbound UDP %s)", port, port)
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
