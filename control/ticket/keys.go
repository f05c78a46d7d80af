package ticket

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Labels (HKDF's info) separate the uses of the seed.
const (
	labelOneTime = "postern ticket v1 one-time key"
	labelTunnel  = "postern ticket v1 tunnel preshared key"
	labelID      = "postern ticket v1 id"
	labelReply   = "postern ticket v1 reply mac"
	labelPeer    = "postern ticket v1 peer preshared key"
)

// IDSize is the length of a ticket's id in bytes. Ids are unique within one book of at most
// MaxOpen, so 64 bits are plenty.
const IDSize = 8

// ID identifies a ticket in logs, replies and the book. It is not secret.
type ID [IDSize]byte

// String returns the id in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText encodes as String does.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText decodes what MarshalText wrote.
func (id *ID) UnmarshalText(t []byte) error {
	if len(t) != hex.EncodedLen(IDSize) {
		return fmt.Errorf("%q is no ticket id", t)
	}
	if _, err := hex.Decode(id[:], t); err != nil {
		return fmt.Errorf("%q is no ticket id", t)
	}
	return nil
}

// Key is symmetric key material of a ticket. It redacts itself; only Base64 reveals it.
type Key struct{ b [32]byte }

// ParseKey parses Base64's result.
func ParseKey(s string) (Key, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 32 {
		return Key{}, errors.New("not 32 bytes in base64")
	}
	return Key{[32]byte(b)}, nil
}

// Base64 returns the key in the clear.
func (k Key) Base64() string { return base64.StdEncoding.EncodeToString(k.b[:]) }

// IsZero reports whether the key is unset.
func (k Key) IsZero() bool { return k == Key{} }

// Format makes every fmt verb print a placeholder.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue makes slog print a placeholder.
func (k Key) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText makes JSON and YAML encode a placeholder.
func (k Key) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Keys are the keys derived from a ticket's seed.
type Keys struct {
	ID ID
	// OneTime is the joiner's key in the tunnel in which it redeems the ticket.
	OneTime peer.PrivateKey
	// Tunnel is the preshared key of that tunnel.
	Tunnel peer.PresharedKey
	// Reply authenticates a reply to the ticket.
	Reply Key
	// Peer is what the permanent preshared key is derived from if a reply replaced redeeming
	// in-band; see PeerKey.
	Peer Key
}

// Keys derives the ticket's keys.
func (t Ticket) Keys() (Keys, error) {
	var k Keys
	id, err := t.Seed.derive(labelID, IDSize)
	if err != nil {
		return Keys{}, err
	}
	k.ID = ID(id)
	for _, d := range []struct {
		label string
		set   func([32]byte)
	}{
		{labelOneTime, func(b [32]byte) { k.OneTime = peer.PrivateKeyFromBytes(b) }},
		{labelTunnel, func(b [32]byte) { k.Tunnel = peer.PresharedKeyFromBytes(b) }},
		{labelReply, func(b [32]byte) { k.Reply = Key{b} }},
		{labelPeer, func(b [32]byte) { k.Peer = Key{b} }},
	} {
		b, err := t.Seed.derive(d.label, 32)
		if err != nil {
			return Keys{}, err
		}
		d.set([32]byte(b))
	}
	return k, nil
}

func (s Seed) derive(label string, n int) ([]byte, error) {
	b, err := hkdf.Key(sha256.New, s.b[:], nil, label, n)
	if err != nil {
		return nil, fmt.Errorf("derive the ticket's keys: %w", err)
	}
	return b, nil
}

// PeerKey returns the permanent preshared key of two gateways that joined by a reply: HKDF of the
// key with both public keys, inviter's first, as info. It is bound to both, so that nobody can
// replay a reply in another's name.
func (k Key) PeerKey(inviter, joiner peer.PublicKey) (peer.PresharedKey, error) {
	info := labelPeer + string(inviter[:]) + string(joiner[:])
	b, err := hkdf.Key(sha256.New, k.b[:], nil, info, peer.KeySize)
	if err != nil {
		return peer.PresharedKey{}, fmt.Errorf("derive the peer's preshared key: %w", err)
	}
	return peer.PresharedKeyFromBytes([peer.KeySize]byte(b)), nil
}
