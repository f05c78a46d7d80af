//go:build linux

package netlab

import (
	"fmt"
	"net/netip"
)

// What may happen to a router with active flows: lost and expired mappings, other ports, another
// address.

// SetTimeouts sets the idle times in seconds after which a UDP mapping without an answer, and one
// with traffic both ways, expire; 0 leaves one unchanged. A mapping gets the new time with its
// next packet.
func (n *NAT) SetTimeouts(unreplied, stream int) {
	n.lab.t.Helper()
	if unreplied > 0 {
		n.Sysctl("net.netfilter.nf_conntrack_udp_timeout", fmt.Sprint(unreplied))
	}
	if stream > 0 {
		n.Sysctl("net.netfilter.nf_conntrack_udp_timeout_stream", fmt.Sprint(stream))
	}
}

// Restart drops all mappings and flows of the router and, for AddressRestricted, the addresses
// that the inside has sent to.
func (n *NAT) Restart() {
	n.lab.t.Helper()
	n.mustRun("", "conntrack", "-F")
	n.mustRun(fmt.Sprintf("flush set ip %s seen\nflush map ip %s owner\n", natTable, natTable), "nft", "-f", "-")
}

// Rebind drops all mappings, and gives later ones ports of a range instead of the inside port:
// flows continue from ports that their peers do not know. A symmetric NAT is no longer symmetric;
// FullCone and AddressRestricted lose their open port.
func (n *NAT) Rebind(first, last uint16) {
	n.lab.t.Helper()
	n.mustRun(fmt.Sprintf(`flush chain ip %s outbound
flush chain ip %s inbound
add rule ip %s outbound oifname %q ip protocol udp masquerade to :%d-%d
add rule ip %s outbound oifname %q masquerade
`, natTable, natTable, natTable, wanInterface, first, last, natTable, wanInterface), "nft", "-f", "-")
	n.Restart()
}

// ChangeWANAddress gives the router another outer address, as some providers do every night. All
// mappings are lost; counters start at 0.
func (n *NAT) ChangeWANAddress(addr netip.Addr) {
	n.lab.t.Helper()
	n.options.WANAddr = addr
	rules, err := natRules(n.options)
	if err != nil {
		n.lab.t.Fatalf("netlab: NAT %s: %v", n.name, err)
	}
	n.ChangeAddress(wanInterface, addr)
	n.mustRun(fmt.Sprintf("delete table ip %s\n%s", natTable, rules), "nft", "-f", "-")
	n.Restart()
}
