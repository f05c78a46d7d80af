// Package uapi writes and reads WireGuard's configuration protocol, the text that a
// WireGuard device is configured with ("set") and reports its state in ("get").
//
// # Format
//
// A message is lines of key=value, ended by the end of the text. Keys of the device
// come first; each public_key line starts a peer, and the lines after it are about
// that peer (https://www.wireguard.com/xplatform/#configuration-protocol). Keys are
// 64 hexadecimal digits, times whole seconds and nanoseconds, sizes bytes.
//
// The protocol ends a message at the first blank line and says nothing about what
// follows it, so a stray line break loses configuration in silence. The writer
// therefore refuses every value that holds a control character, and nothing outside
// this package puts such text together.
//
// [Config] is what "set" takes, [Device] what "get" answers. Both are plain values:
// nothing here talks to a device.
package uapi

import (
	"errors"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// ErrSyntax reports text that is not in the protocol's format, or a value that cannot
// be written in it.
var ErrSyntax = errors.New("malformed WireGuard configuration protocol")

// Config is a "set" message: what to change. A nil pointer leaves a value as it is.
type Config struct {
	// PrivateKey is the device's key; the zero key removes it.
	PrivateKey *peer.PrivateKey
	// ListenPort is the UDP port; 0 lets the system choose.
	ListenPort *uint16
	// FirewallMark is SO_MARK of the sockets; 0 switches it off.
	FirewallMark *uint32
	// ReplacePeers removes every peer before Peers are applied.
	ReplacePeers bool
	Peers        []PeerConfig
}

// PeerConfig changes one peer, in the order of the fields.
type PeerConfig struct {
	PublicKey peer.PublicKey
	// UpdateOnly ignores the peer when the device does not have it.
	UpdateOnly bool
	// Remove takes the peer off the device; the other fields must then be unset.
	Remove bool
	// PresharedKey: the zero key means none.
	PresharedKey *peer.PresharedKey
	// Endpoint is whatever text the device's bind understands; "" leaves it alone.
	Endpoint string
	// Keepalive is the persistent keepalive interval in seconds; 0 switches it off.
	Keepalive *uint16
	// ReplaceAllowedIPs removes the peer's addresses before AllowedIPs are added.
	ReplaceAllowedIPs bool
	AllowedIPs        []netip.Prefix
}

// Device is a "get" answer: the state of a device.
type Device struct {
	PrivateKey   peer.PrivateKey
	ListenPort   uint16
	FirewallMark uint32
	Peers        []Peer
}

// Peer is the state of one peer.
type Peer struct {
	PublicKey    peer.PublicKey
	PresharedKey peer.PresharedKey
	// Endpoint is what the bind's endpoint calls itself; "" when there is none.
	Endpoint string
	// LastHandshake is zero before the first.
	LastHandshake time.Time
	// TxBytes and RxBytes count WireGuard messages without IP and UDP headers.
	TxBytes, RxBytes uint64
	// Keepalive is the persistent keepalive interval in seconds, 0 for none.
	Keepalive  uint16
	AllowedIPs []netip.Prefix
}
