// Package peer defines what identifies and describes a peer: its key, the overlay address derived
// from the key, its configuration and its statistics.
//
// # Overlay addresses
//
// A gateway's overlay address is the byte 0xfd followed by the first 15 bytes of
//
//	BLAKE2s-256("postern overlay v1" ‖ public key)
//
// which is an IPv6 unique local address (RFC 4193). Nobody has to allocate it, and it cannot
// clash with an IPv4 pod network. Only the holder of the key can use it, since it is the only
// entry in the peer's AllowedIPs. With 120 bits of hash, an accidental collision among a million
// gateways is less likely than 2^-80. A gateway still refuses a peer whose address equals
// another's.
//
// The package imports only the standard library and x/crypto.
package peer

import (
	"net/netip"
	"time"

	"golang.org/x/crypto/blake2s"
)

// overlayLabel separates this use of the hash from all others.
const overlayLabel = "postern overlay v1"

// OverlayPrefix contains all overlay addresses (RFC 4193 §3.1: fd00::/8).
var OverlayPrefix = netip.MustParsePrefix("fd00::/8")

// SiteBits is the prefix length of one site's network of unique local addresses (RFC 4193 §3.1).
// A peer without a gateway may have one such network. It practically never contains a gateway's
// overlay address, unless someone searches for a key with such an address.
const SiteBits = 48

// OverlayAddr is the overlay address of the gateway that holds the key.
func OverlayAddr(k PublicKey) netip.Addr {
	in := make([]byte, 0, len(overlayLabel)+len(k))
	h := blake2s.Sum256(append(append(in, overlayLabel...), k[:]...))
	var a [16]byte
	a[0] = 0xfd
	copy(a[1:], h[:15])
	return netip.AddrFrom16(a)
}

// Fingerprint is a short form of a key that people can compare by eye: the first 8 bytes of the
// overlay hash as four groups of four hexadecimal digits.
func Fingerprint(k PublicKey) string {
	const digits = "0123456789abcdef"
	a := OverlayAddr(k).As16()
	out := make([]byte, 0, 19)
	for i, b := range a[1:9] {
		if i > 0 && i%2 == 0 {
			out = append(out, '-')
		}
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// Config is a peer's configuration. The tunnel does not modify the caller's slices.
type Config struct {
	// Name is the peer's name here: a DNS label of at most 40 characters, unique.
	Name      string
	PublicKey PublicKey
	// PresharedKey is mixed into the handshake; the zero value means none.
	PresharedKey PresharedKey
	// Endpoints are the underlay addresses at which the peer may be reached, best first. A
	// handshake is sent to all of them until one answers. Without endpoints the peer must dial.
	Endpoints []netip.AddrPort
	// Keepalive is the interval of WireGuard's persistent keepalive, a whole number
	// of seconds; 0 switches it off.
	Keepalive time.Duration
	// Stock marks a plain WireGuard peer: it has its own AllowedIPs and no overlay address, and
	// roams as WireGuard does.
	Stock bool
	// Managed marks a peer whose path is chosen from outside. WireGuard's roaming is off for it:
	// packets from another address do not change the path. Other peers roam.
	Managed bool
	// AllowedIPs are the addresses of a stock peer. All others have only their overlay address.
	AllowedIPs []netip.Prefix
}

// Addresses returns the inner addresses from which the peer may send.
func (c Config) Addresses() []netip.Prefix {
	if c.Stock {
		return c.AllowedIPs
	}
	a := OverlayAddr(c.PublicKey)
	return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
}

// Stats is a snapshot of a peer's counters.
type Stats struct {
	// Endpoint is the underlay address that last sent an authenticated packet, else the one
	// dialled; invalid if there is neither.
	Endpoint netip.AddrPort
	// LastHandshake is zero before the first.
	LastHandshake time.Time
	// RxBytes and TxBytes count the bytes of WireGuard messages, including handshakes and
	// keepalives, without IP and UDP headers.
	RxBytes, TxBytes uint64
}
