//go:build linux

package netlab

import (
	"fmt"
	"net/netip"
)

// Forward forwards a UDP port of the router's outer address to an inside host, for all remote
// addresses. ChangeWANAddress removes it.
func (n *NAT) Forward(port uint16, to netip.AddrPort) {
	n.lab.t.Helper()
	n.mustRun(fmt.Sprintf(`insert rule ip %s inbound iifname %q udp dport %d dnat to %s
insert rule ip %s forward iifname %q ct status dnat accept
`, natTable, wanInterface, port, to, natTable, wanInterface), "nft", "-f", "-")
}
