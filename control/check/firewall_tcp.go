package check

import (
	"fmt"
	"net/netip"
)

// letTCP are the rules that let TCP from this machine to an address through, out of here
// and in there; empty for what is no address. They are inserted, before a rule that drops.
func letTCP(to string) string {
	a, err := netip.ParseAddrPort(to)
	if err != nil {
		return ""
	}
	host := a.Addr().Unmap()
	return fmt.Sprintf(" (`nft insert rule inet filter output %s daddr %s tcp dport %d accept` here, `nft insert rule inet filter input tcp dport %d accept` there)",
		family(host), host, a.Port(), a.Port())
}
