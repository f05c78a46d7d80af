//go:build linux

package netlab

import (
	"fmt"
	"net/netip"
)

// What befalls a router while flows cross it: lost and expired mappings, other ports,
// another address.

// SetTimeouts sets after how many seconds an idle UDP mapping is forgotten that saw no
// answer, or traffic both ways; 0 leaves one as it is. Mappings get the new time with
// their next packet.
func (n *NAT) SetTimeouts(unreplied, stream int) {
	n.lab.t.Helper()
	if unreplied > 0 {
		n.Sysctl("net.netfilter.nf_conntrack_udp_timeout", fmt.Sprint(unreplied))
	}
	if stream > 0 {
		n.Sysctl("net.netfilter.nf_conntrack_udp_timeout_stream", fmt.Sprint(stream))
	}
}

// Restart drops every mapping and flow that the router knows, and for AddressRestricted
// whom the inside has sent to.
func (n *NAT) Restart() {
	n.lab.t.Helper()
	n.mustRun("", "conntrack", "-F")
	n.mustRun(fmt.Sprintf("flush set ip %s seen\nflush map ip %s owner\n", natTable, natTable), "nft", "-f", "-")
}

// Rebind drops every mapping and gives those that follow ports of a range instead of
// their own: flows go on from ports that their peers don't know. A NAT that was
// symmetric no longer is; FullCone and AddressRestricted lose their open port.
func (n *NAT) Rebind(first, last uint16) {
	n.lab.t.Helper()
	n.mustRun(fmt.Sprintf(`flush chain ip %s outbound
flush chain ip %s inbound
add rule ip %s outbound oifname %q ip protocol udp masquerade to :%d-%d
add rule ip %s outbound oifname %q masquerade
`, natTable, natTable, natTable, wanInterface, first, last, natTable, wanInterface), "nft", "-f", "-")
	n.Restart()
}

// ChangeWANAddress gives the router another outer address, as providers do overnight.
// Every mapping is lost; counters begin again.
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
