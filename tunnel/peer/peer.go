// Package peer is the vocabulary of the tunnel: the keys that identify gateways, the
// overlay address that follows from a key, and a peer's configuration and statistics.
//
// # Overlay addresses
//
// A gateway's overlay address is the byte 0xfd followed by the first 15 bytes of
//
//	BLAKE2s-256("postern overlay v1" ‖ public key)
//
// which is an IPv6 unique local address (RFC 4193) that nobody has to allocate, that
// cannot clash with an IPv4 pod network, and that only the holder of the key can use:
// it is the only entry in the peer's AllowedIPs. 120 bits of hash make an accidental
// collision among a million gateways less likely than 2^-80; a gateway still refuses
// a peer whose address equals another's.
//
// The package imports nothing but the standard library and x/crypto.
package peer

import (
	"net/netip"
	"time"

	"golang.org/x/crypto/blake2s"
)

// overlayLabel separates this use of the hash from every other.
const overlayLabel = "postern overlay v1"

// OverlayPrefix holds every overlay address (RFC 4193 §3.1: fd00::/8).
var OverlayPrefix = netip.MustParsePrefix("fd00::/8")

// SiteBits is the length of a network of local addresses (RFC 4193 §3.1), of which others than
// gateways may have one each: that the address of a key is in it is as good as impossible, unless
// someone looks for such a key.
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

// Fingerprint is a short form of a key for people to compare by eye: the first 8
// bytes of the overlay hash as four groups of four hexadecimal digits.
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

// Config is what the tunnel must know of a peer. It holds no pointers into the
// caller's memory that the tunnel would change.
type Config struct {
	// Name is the peer's name here: a DNS label of at most 40 characters, unique.
	Name      string
	PublicKey PublicKey
	// PresharedKey is mixed into the handshake; the zero value means none.
	PresharedKey PresharedKey
	// Endpoints are the underlay addresses the peer may be reached at, best first.
	// A handshake is sent to all of them until one answers. Without any, the peer
	// must dial.
	Endpoints []netip.AddrPort
	// Keepalive is the interval of WireGuard's persistent keepalive, a whole number
	// of seconds; 0 switches it off.
	Keepalive time.Duration
	// Stock marks a plain WireGuard peer: it has AllowedIPs of its own, no overlay
	// address, and moves (roams) as WireGuard does.
	Stock bool
	// Managed marks a peer whose path is chosen for it: WireGuard's roaming is off, and
	// the address that a packet came from moves nothing. Others roam as WireGuard does.
	Managed bool
	// AllowedIPs are the addresses of a stock peer. Others get their overlay address
	// and nothing else.
	AllowedIPs []netip.Prefix
}

// Addresses are the inner addresses that the peer may send from.
func (c Config) Addresses() []netip.Prefix {
	if c.Stock {
		return c.AllowedIPs
	}
	a := OverlayAddr(c.PublicKey)
	return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
}

// Stats is a snapshot of a peer's counters.
type Stats struct {
	// Endpoint is the underlay address that last sent an authenticated packet, or the
	// one dialled when none has; invalid when there is neither.
	Endpoint netip.AddrPort
	// LastHandshake is zero before the first.
	LastHandshake time.Time
	// RxBytes and TxBytes count the WireGuard messages' bytes, handshakes and
	// keepalives included, IP and UDP headers not.
	RxBytes, TxBytes uint64
}
