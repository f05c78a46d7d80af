//go:build linux

package netlab

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Count is a number of packets and of bytes, IP headers included.
type Count struct{ Packets, Bytes uint64 }

// Traffic counts what crossed a router's outer interface. In is what arrived from outside,
// including dropped packets, and Out is what left.
type Traffic struct {
	UDPIn, UDPOut Count
	TCPIn, TCPOut Count
	// OtherIn and OtherOut are ICMP and all other IPv4 protocols except IGMP, which hosts only
	// speak on their own network (RFC 3376 §4: TTL 1).
	OtherIn, OtherOut Count
	// Strays are packets from outside that belonged to no flow and that no rule accepted.
	Strays Count
}

// meterProtocols are counted separately, in each direction.
var meterProtocols = []string{"udp", "tcp", "other"}

// meterCounters declares the counters of meterChains.
func meterCounters() string {
	b := &strings.Builder{}
	for _, dir := range []string{"in", "out"} {
		for _, proto := range meterProtocols {
			fmt.Fprintf(b, "  counter %s_%s {}\n", proto, dir)
		}
	}
	return b.String()
}

// meterChains counts at the outermost hooks: arriving packets before any rule can drop them,
// leaving packets after all rules that could.
func meterChains() string {
	b := &strings.Builder{}
	chain := func(name, hook, dir, match string) {
		fmt.Fprintf(b, "  chain %s {\n    %s\n", name, hook)
		for _, proto := range meterProtocols {
			cond := "meta l4proto " + proto + " "
			if proto == "other" {
				cond = "meta l4proto != { tcp, udp, igmp } "
			}
			fmt.Fprintf(b, "    %s %q %scounter name %s_%s\n", match, wanInterface, cond, proto, dir)
		}
		fmt.Fprintf(b, "  }\n")
	}
	chain("meter_in", "type filter hook prerouting priority -310;", "in", "iifname")
	chain("meter_out", "type filter hook postrouting priority 310;", "out", "oifname")
	return b.String()
}

// Traffic reads the router's counters.
func (n *NAT) Traffic(ctx context.Context) (Traffic, error) {
	counts, err := n.counters(ctx, "ip", natTable)
	if err != nil {
		return Traffic{}, err
	}
	return Traffic{
		UDPIn: counts["udp_in"], UDPOut: counts["udp_out"],
		TCPIn: counts["tcp_in"], TCPOut: counts["tcp_out"],
		OtherIn: counts["other_in"], OtherOut: counts["other_out"],
		Strays: counts["strays"],
	}, nil
}

// counters reads the named counters of a table on this host.
func (h *Host) counters(ctx context.Context, family, table string) (map[string]Count, error) {
	out, err := h.Run(ctx, "nft", "-j", "list", "counters", "table", family, table)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Nftables []struct {
			Counter *struct {
				Name    string `json:"name"`
				Packets uint64 `json:"packets"`
				Bytes   uint64 `json:"bytes"`
			} `json:"counter"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		return nil, fmt.Errorf("on %s: read counters of table %s: %w", h.name, table, err)
	}
	counts := map[string]Count{}
	for _, entry := range doc.Nftables {
		if c := entry.Counter; c != nil {
			counts[c.Name] = Count{c.Packets, c.Bytes}
		}
	}
	return counts, nil
}

// Meter counts the UDP datagrams that a host receives and sends on one port. It shows, for
// example, that a scanner got no response.
type Meter struct {
	host          *Host
	family, table string
}

// MeterUDP starts counting datagrams between the host's port and the given remote address. There
// may be only one meter for each address and port.
func (h *Host) MeterUDP(port uint16, remote string) *Meter {
	h.lab.t.Helper()
	m := &Meter{host: h, family: "ip", table: fmt.Sprintf("meter_%d_%s", port, strings.ReplaceAll(remote, ".", "_"))}
	h.mustRun(fmt.Sprintf(`table ip %s {
  counter in {}
  counter out {}
  chain in {
    type filter hook prerouting priority -310;
    ip saddr %s udp dport %d counter name in
  }
  chain out {
    type filter hook postrouting priority 310;
    ip daddr %s udp sport %d counter name out
  }
}
`, m.table, remote, port, remote, port), "nft", "-f", "-")
	return m
}

// Read returns the counts since the meter was created.
func (m *Meter) Read(ctx context.Context) (in, out Count, err error) {
	counts, err := m.host.counters(ctx, m.family, m.table)
	return counts["in"], counts["out"], err
}
