package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// Rules are inserted, not appended: before the one that drops. They are nftables' words
// for the table and chains that its own example configuration has (inet filter; input and
// output), followed by what a cloud's security group asks for.

// letIn is the rule that lets UDP to a local port in, from one address or, where that is
// not known, from anywhere.
func letIn(port, from string) string {
	source, words := "", "from anywhere"
	if a, ok := hostOf(from); ok {
		source, words = family(a)+" saddr "+a.String()+" ", "from "+prefix(a)
	}
	return fmt.Sprintf("`nft insert rule inet filter input %sudp dport %s accept` (in a cloud allow inbound UDP %s %s)", source, port, port, words)
}

// letOut is the rule that lets UDP to an address out.
func letOut(to string) string {
	a, err := netip.ParseAddrPort(to)
	if err != nil {
		return ""
	}
	host, port := a.Addr().Unmap(), strconv.Itoa(int(a.Port()))
	return fmt.Sprintf("`nft insert rule inet filter output %s daddr %s udp dport %s accept` (in a cloud allow outbound UDP %s to %s)",
		family(host), host, port, port, prefix(host))
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "ip"
	}
	return "ip6"
}

func prefix(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

// dialled are the addresses of the peer that are worth a rule: the one that it was heard
// from is behind whatever holds packets back, so what it announces comes first.
func (p Params) dialled() []string {
	var out []string
	for _, c := range p.Candidates {
		if scope(c.Address) == "" && !isRelayed(c) && portOf(c.Address) != "" && !slices.Contains(out, c.Address) {
			out = append(out, c.Address)
		}
	}
	for _, e := range p.Endpoints {
		if len(p.Candidates) == 0 && portOf(e) != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	if len(out) == 0 && p.From != "" {
		out = append(out, p.From)
	}
	return out
}

// target is the first of them, empty without any.
func (p Params) target() string {
	if d := p.dialled(); len(d) > 0 {
		return d[0]
	}
	return ""
}

// ownAddress is this gateway's address of the same family as another, as others see it.
func (p Params) ownAddress(other string) string {
	a, ok := hostOf(other)
	for _, o := range p.Own {
		if h, is := hostOf(o); is && (!ok || h.Is4() == a.Is4()) {
			return o
		}
	}
	return ""
}

// ownPort is the port that this gateway listens on.
func (p Params) ownPort() string {
	if p.Port == 0 {
		return "51820"
	}
	return strconv.Itoa(int(p.Port))
}
