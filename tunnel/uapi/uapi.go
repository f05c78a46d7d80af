// Package uapi writes and reads WireGuard's configuration protocol: the text that configures a
// WireGuard device ("set") and in which it reports its state ("get").
//
// # Format
//
// A message consists of lines key=value and ends at the end of the text. The device's keys come
// first. Each public_key line begins a peer, and the lines after it describe that peer
// (https://www.wireguard.com/xplatform/#configuration-protocol). Keys are 64 hexadecimal digits,
// times are whole seconds and nanoseconds, sizes are bytes.
//
// The protocol ends a message at the first blank line and does not say what becomes of the rest, so
// a stray line break silently loses configuration. The writer therefore refuses values with control
// characters, and no other package composes such text.
//
// [Config] is a "set" message, [Device] a "get" answer. Both are plain values: the package does
// not talk to devices.
package uapi

import (
	"errors"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// ErrSyntax is returned for text that is not in the protocol's format, and for values that cannot
// be written in it.
var ErrSyntax = errors.New("malformed WireGuard configuration protocol")

// Config is a "set" message: what to change. A nil pointer leaves a value as it is.
type Config struct {
	// PrivateKey is the device's key; the zero key removes it.
	PrivateKey *peer.PrivateKey
	// ListenPort is the UDP port; 0 lets the system choose.
	ListenPort *uint16
	// FirewallMark is SO_MARK of the sockets; 0 disables it.
	FirewallMark *uint32
	// ReplacePeers removes every peer before Peers are applied.
	ReplacePeers bool
	Peers        []PeerConfig
}

// PeerConfig changes one peer, in the order of the fields.
type PeerConfig struct {
	PublicKey peer.PublicKey
	// UpdateOnly ignores the peer if the device does not have it.
	UpdateOnly bool
	// Remove removes the peer; the other fields must be unset.
	Remove bool
	// PresharedKey: the zero key means none.
	PresharedKey *peer.PresharedKey
	// Endpoint is any text that the device's bind understands; "" leaves it unchanged.
	Endpoint string
	// Keepalive is the persistent keepalive interval in seconds; 0 disables it.
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
	// Endpoint is the endpoint's name as the bind prints it; "" if there is none.
	Endpoint string
	// LastHandshake is zero before the first.
	LastHandshake time.Time
	// TxBytes and RxBytes count WireGuard messages without IP and UDP headers.
	TxBytes, RxBytes uint64
	// Keepalive is the persistent keepalive interval in seconds, 0 for none.
	Keepalive  uint16
	AllowedIPs []netip.Prefix
}
