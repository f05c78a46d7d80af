package report

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// Bounds on quantities. What is beyond them was not measured.
const (
	maxAge   = 10 * 365 * 24 * time.Hour
	maxWait  = time.Hour
	maxCount = 1 << 31
	maxSize  = 1<<16 - 1 // of an IP packet, in bytes (RFC 791 §3.1)
)

// age and wait bring a duration that was found here within bounds; what a peer sends
// beyond them is refused.
func age(d time.Duration) time.Duration  { return min(max(d, 0), maxAge).Round(time.Second) }
func wait(d time.Duration) time.Duration { return min(max(d, 0), maxWait).Round(time.Millisecond) }
func count(n int) int                    { return min(max(n, 0), maxCount) }

func size(n int) int { return min(max(n, 0), maxSize) }

func isStatus(n int) bool { return n >= 100 && n <= 599 }

// inTime tells times that a clock may show; small machines start at 1970.
func inTime(t time.Time) bool { return t.Year() >= 1970 && t.Year() < 10000 }

// moment is a time that can be told, or none: the stamp of a handshake and the dates of a
// certificate are whatever their maker likes, and JSON has no year of five digits.
func moment(t time.Time) time.Time {
	if !inTime(t) {
		return time.Time{}
	}
	return t.UTC()
}

// address reads an IP address with a port. A zone is a free text, and means nothing
// anywhere else.
func address(s string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Addr().Zone() != "" {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), true
}

// place is an address with a port, or a host name with one; else [foreign.Unfit].
func place(s string) string {
	if a, ok := address(s); ok {
		return a.String()
	}
	return foreign.Of(s).As(host)
}

// addressesOf are those of a list that are addresses, the first of them.
func addressesOf(list []string) (out []netip.AddrPort) {
	for _, s := range list {
		if a, ok := address(s); ok && len(out) < maxEndpoints {
			out = append(out, a)
		}
	}
	return out
}

// hosts are those of a list that are addresses, without ports.
func hosts(list []string) (out []netip.Addr) {
	for _, s := range list {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && len(out) < maxEndpoints {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// fitAll are texts of a form, the first of them.
func fitAll(list []string, form foreign.Form) []string {
	return foreign.Fit(list[:min(len(list), maxNames)], form)
}

// text and those below write what may be absent.
func text(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func texts(list []netip.AddrPort) (out []string) {
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

func hostTexts(list []netip.Addr) (out []string) {
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

func natOf(n catalogue.NAT) NAT { return NAT{known(n.Mapping), known(n.Filtering)} }

// known is a word for a NAT's behaviour, or none.
func known(s string) string {
	if s == "" {
		return ""
	}
	return behaviour(s)
}
