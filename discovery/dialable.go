package discovery

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/discovery/special"
	"github.com/postern-dev/postern/tunnel/peer"
)

// unusable says why an address belongs to no particular host, so that it can be neither a candidate
// nor a destination; empty if it may.
func unusable(a netip.Addr) string {
	switch {
	case !a.IsValid() || a.IsUnspecified():
		return "not an address"
	case a.IsLoopback():
		return "loopback"
	default:
		return nobodys(a)
	}
}

// nobodys is unusable without loopback, which an operator may have reasons to configure and which
// only this host can be the source of.
func nobodys(a netip.Addr) string {
	switch {
	case !a.IsValid() || a.IsUnspecified():
		return "not an address"
	case special.Metadata(a):
		return "the address of a cloud's metadata service"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "multicast or broadcast"
	case peer.OverlayPrefix.Contains(a):
		return "overlay address"
	case reserved(a):
		return "reserved"
	}
	return ""
}

// reserved reports whether no host can have the address: "this network" and class E (RFC 1122
// §3.2.1.3, RFC 1112 §4), and IPv4-compatible IPv6 (RFC 4291 §2.5.5.1).
func reserved(a netip.Addr) bool {
	if a.Is4() {
		b := a.As4()
		return b[0] == 0 || b[0] >= 240
	}
	b := a.As16()
	return [12]byte(b[:12]) == [12]byte{}
}

// Dialable says why nothing may be sent to an address that a peer or another stranger announced:
// they could make us reach what only we can. Refused are port 0, loopback, link-local and metadata
// services, multicast, broadcast, the unspecified address, the overlay, this host's own addresses
// and the forbidden prefixes (those of pods and Services), including translator and tunnel
// addresses that lead to any of them ([special.Embedded]). The reason is empty if the address may
// be dialled. IPv4-mapped addresses count as IPv4.
func Dialable(to netip.AddrPort, own []netip.Addr, forbidden []netip.Prefix) (reason string) {
	if to.Port() == 0 {
		return "port 0"
	}
	if to.Addr().Zone() != "" {
		return "with a zone, which means something on one host only"
	}
	a := to.Addr().Unmap()
	if why := undialable(a, own, forbidden); why != "" {
		return why
	}
	for _, v4 := range special.Embedded(a) {
		if !v4.IsValid() {
			return "of a NAT64 that only its network knows"
		}
		if why := undialable(v4, own, forbidden); why != "" {
			return fmt.Sprintf("leads to %v: %s", v4, why)
		}
	}
	return ""
}

func undialable(a netip.Addr, own []netip.Addr, forbidden []netip.Prefix) string {
	if why := unusable(a); why != "" {
		return why
	}
	if slices.ContainsFunc(own, func(o netip.Addr) bool { return o.Unmap().WithZone("") == a }) {
		return "an address of this host"
	}
	if p, in := within(a, forbidden); in {
		return fmt.Sprintf("in %v, which is this cluster's own", p)
	}
	return ""
}

// within returns the first prefix that contains an address.
func within(a netip.Addr, prefixes []netip.Prefix) (netip.Prefix, bool) {
	i := slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return prefixes[i], true
}
