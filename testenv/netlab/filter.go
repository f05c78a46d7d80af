//go:build linux

package netlab

import (
	"context"
	"fmt"
	"strings"
)

// Filter drops packets in the lab's networks until it is removed, and counts them. It drops
// silently: the sender gets no error and no ICMP.
type Filter struct {
	host          *Host
	family, table string
}

// Hooks of filters: on a router before connection tracking (priority -200), so that a dropped
// packet leaves no entry; on a network where frames are forwarded between ports.
const (
	routerHook  = "type filter hook prerouting priority -320;"
	networkHook = "type filter hook forward priority 0;"
)

// Drop drops packets that arrive at the host, on any interface, and match one of the nftables
// matches (family ip), such as "udp dport 53". On a router this includes forwarded packets, with
// the addresses that they arrive with.
func (h *Host) Drop(matches ...string) *Filter {
	h.lab.t.Helper()
	return h.newFilter("ip", routerHook, matches)
}

// Drop drops packets that cross the network and match one of the nftables matches (family bridge,
// so "ip protocol udp" must precede matches on UDP fields).
func (n *Network) Drop(matches ...string) *Filter {
	n.lab.t.Helper()
	return n.host.newFilter("bridge", networkHook, matches)
}

func (h *Host) newFilter(family, hook string, matches []string) *Filter {
	h.lab.t.Helper()
	f := &Filter{host: h, family: family, table: h.tableName("filter")}
	rules := &strings.Builder{}
	fmt.Fprintf(rules, "table %s %s {\n  counter dropped {}\n  chain match {\n    %s\n", family, f.table, hook)
	for _, m := range matches {
		fmt.Fprintf(rules, "    %s counter name dropped drop\n", m)
	}
	rules.WriteString("  }\n}\n")
	h.mustRun(rules.String(), "nft", "-f", "-")
	return f
}

// Remove removes the filter.
func (f *Filter) Remove() {
	f.host.lab.t.Helper()
	f.host.mustRun("", "nft", "delete", "table", f.family, f.table)
}

// Dropped returns the number of packets that the filter has dropped.
func (f *Filter) Dropped(ctx context.Context) (Count, error) {
	counts, err := f.host.counters(ctx, f.family, f.table)
	return counts["dropped"], err
}

// DropICMPErrors makes a router send no ICMP errors about packets that it could not forward (RFC
// 792 type 3, including "packet too big", and type 11), like firewalls that filter all ICMP.
func (h *Host) DropICMPErrors() {
	h.lab.t.Helper()
	h.mustRun(fmt.Sprintf(`table ip %s {
  chain out {
    type filter hook output priority 0;
    icmp type { destination-unreachable, time-exceeded } drop
  }
}
`, h.tableName("noicmp")), "nft", "-f", "-")
}

// DropFragments makes a router drop arriving IPv4 fragments before connection tracking can
// reassemble them (priority -400).
func (h *Host) DropFragments() {
	h.lab.t.Helper()
	const fragment = "ip frag-off & 0x3fff != 0 drop" // more fragments, or an offset
	h.mustRun(fmt.Sprintf(`table ip %s {
  chain in {
    type filter hook prerouting priority -450;
    %s
  }
}
`, h.tableName("nofrag"), fragment), "nft", "-f", "-")
}

// MeterSent starts counting the UDP datagrams that the host itself sends, also to its own
// addresses, and that match one of the nftables matches (family inet).
func (h *Host) MeterSent(matches ...string) *Meter {
	h.lab.t.Helper()
	m := &Meter{host: h, family: "inet", table: h.tableName("sent")}
	rules := &strings.Builder{}
	fmt.Fprintf(rules, "table inet %s {\n  counter in {}\n  counter out {}\n  chain out {\n    type filter hook output priority -310;\n", m.table)
	for _, match := range matches {
		fmt.Fprintf(rules, "    meta l4proto udp %s counter name out\n", match)
	}
	rules.WriteString("  }\n}\n")
	h.mustRun(rules.String(), "nft", "-f", "-")
	return m
}
