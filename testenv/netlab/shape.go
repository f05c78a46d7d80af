//go:build linux

package netlab

import "fmt"

// LimitRate limits the rate of an interface's outbound traffic, in bits per second (token bucket;
// packets queue for at most 50 ms). Another call replaces the limit.
func (h *Host) LimitRate(iface string, bitsPerSecond uint64) {
	h.lab.t.Helper()
	// A tenth of a second's worth, but at least one GSO packet of 64 KB.
	burst := max(bitsPerSecond/8/10, 64<<10)
	h.mustRun("", "tc", "qdisc", "replace", "dev", iface, "root", "tbf",
		"rate", fmt.Sprintf("%dbit", bitsPerSecond), "burst", fmt.Sprintf("%db", burst), "latency", "50ms")
}

// lossTable contains the rules of DropIncoming.
const lossTable = "loss"

// DropIncoming drops a random share of the IPv4 packets that arrive on an interface, in tenths of
// a percent; 0 ends it. A host has at most one such rule.
func (h *Host) DropIncoming(iface string, perMille int) {
	h.lab.t.Helper()
	if perMille < 0 || perMille > 1000 {
		h.lab.t.Fatalf("netlab: loss of %d ‰ on %s", perMille, h.name)
	}
	// "add" before "delete" makes the deletion succeed even if there is no table.
	rules := fmt.Sprintf("add table ip %s\ndelete table ip %s\n", lossTable, lossTable)
	which := fmt.Sprintf("numgen random mod 1000 < %d ", perMille)
	if perMille == 1000 { // nft refuses a comparison that always holds
		which = ""
	}
	if perMille > 0 {
		rules += fmt.Sprintf(`table ip %s {
  chain in {
    type filter hook prerouting priority -320;
    iifname %q %sdrop
  }
}
`, lossTable, iface, which)
	}
	h.mustRun(rules, "nft", "-f", "-")
}
