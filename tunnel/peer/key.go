package peer

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/crypto/curve25519"
)

// KeySize is the length of every WireGuard key in bytes (Curve25519 points and
// scalars, and the 256-bit preshared key; WireGuard whitepaper §5).
const KeySize = 32

// redacted is printed instead of a secret, whatever the verb or encoder.
const redacted = "(hidden)"

// ErrKey is returned for text that is not a key: 32 bytes in standard base64, 44 characters.
var ErrKey = errors.New("not a WireGuard key (want 44 characters of base64, as `postern key gen` and `wg genkey` print)")

// PublicKey identifies a gateway. It is comparable and safe to print.
type PublicKey [KeySize]byte

// PrivateKey is a Curve25519 scalar. It is redacted wherever it is printed, logged or encoded.
// Only [PrivateKey.Base64] and [PrivateKey.Hex] reveal it.
type PrivateKey struct{ b [KeySize]byte }

// PresharedKey is WireGuard's optional symmetric key, redacted like PrivateKey. The zero value
// means "none".
type PresharedKey struct{ b [KeySize]byte }

// NewPrivateKey returns a new random private key.
func NewPrivateKey() (PrivateKey, error) {
	var k PrivateKey
	if _, err := rand.Read(k.b[:]); err != nil {
		return PrivateKey{}, fmt.Errorf("make private key: %w", err)
	}
	return k.clamped(), nil
}

// PrivateKeyFromBytes returns the private key made of 32 secret bytes, clamped as in RFC 7748 §5.
func PrivateKeyFromBytes(b [KeySize]byte) PrivateKey { return PrivateKey{b}.clamped() }

// ParsePrivateKey parses a private key in base64, as WireGuard's own tools do.
func ParsePrivateKey(s string) (PrivateKey, error) {
	b, err := parseKey(s)
	if err != nil {
		return PrivateKey{}, err
	}
	return PrivateKey{b}.clamped(), nil
}

// clamped sets and clears the bits of RFC 7748 §5, so that equal keys compare equal however they
// were made.
func (k PrivateKey) clamped() PrivateKey {
	k.b[0] &= 248
	k.b[31] = (k.b[31] & 127) | 64
	return k
}

// Public returns the public key.
func (k PrivateKey) Public() PublicKey {
	pub, err := curve25519.X25519(k.b[:], curve25519.Basepoint)
	if err != nil { // Only for low-order points, which the base point is not.
		panic("peer: multiplication with the base point failed: " + err.Error())
	}
	return PublicKey(pub)
}

// SharedSecret is X25519(k, pub). It fails for a low-order public key.
func (k PrivateKey) SharedSecret(pub PublicKey) ([KeySize]byte, error) {
	s, err := curve25519.X25519(k.b[:], pub[:])
	if err != nil {
		return [KeySize]byte{}, fmt.Errorf("public key %s: %w", pub, err)
	}
	return [KeySize]byte(s), nil
}

// IsZero reports whether the key is unset.
func (k PrivateKey) IsZero() bool { return k == PrivateKey{} }

// Equal compares in constant time.
func (k PrivateKey) Equal(o PrivateKey) bool { return subtle.ConstantTimeCompare(k.b[:], o.b[:]) == 1 }

// Base64 reveals the key in the form that WireGuard's tools read.
func (k PrivateKey) Base64() string { return base64.StdEncoding.EncodeToString(k.b[:]) }

// Hex reveals the key in the form of WireGuard's configuration protocol.
func (k PrivateKey) Hex() string { return hex.EncodeToString(k.b[:]) }

// Format makes every fmt verb print a placeholder.
func (k PrivateKey) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(redacted)) }

// LogValue makes slog print a placeholder.
func (k PrivateKey) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText makes JSON, YAML and XML encode a placeholder.
func (k PrivateKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// NewPresharedKey returns a new random preshared key.
func NewPresharedKey() (PresharedKey, error) {
	var k PresharedKey
	if _, err := rand.Read(k.b[:]); err != nil {
		return PresharedKey{}, fmt.Errorf("make preshared key: %w", err)
	}
	return k, nil
}

// PresharedKeyFromBytes wraps 32 bytes of secret material.
func PresharedKeyFromBytes(b [KeySize]byte) PresharedKey { return PresharedKey{b} }

// ParsePresharedKey parses a preshared key in base64.
func ParsePresharedKey(s string) (PresharedKey, error) {
	b, err := parseKey(s)
	return PresharedKey{b}, err
}

// IsZero reports whether there is no preshared key.
func (k PresharedKey) IsZero() bool { return k == PresharedKey{} }

// Equal compares in constant time.
func (k PresharedKey) Equal(o PresharedKey) bool {
	return subtle.ConstantTimeCompare(k.b[:], o.b[:]) == 1
}

// Base64 reveals the key in the form that WireGuard's tools read.
func (k PresharedKey) Base64() string { return base64.StdEncoding.EncodeToString(k.b[:]) }

// Hex reveals the key in the form of WireGuard's configuration protocol.
func (k PresharedKey) Hex() string { return hex.EncodeToString(k.b[:]) }

// Format makes every fmt verb print a placeholder.
func (k PresharedKey) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(redacted)) }

// LogValue makes slog print a placeholder.
func (k PresharedKey) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText makes JSON, YAML and XML encode a placeholder.
func (k PresharedKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// ParsePublicKey parses a public key in base64. The all-zero key is refused: an unset key looks
// like that, and it is also a low-order point.
func ParsePublicKey(s string) (PublicKey, error) {
	b, err := parseKey(s)
	if err != nil {
		return PublicKey{}, err
	}
	if b == [KeySize]byte{} {
		return PublicKey{}, fmt.Errorf("%w: all zero", ErrKey)
	}
	return PublicKey(b), nil
}

// String is the base64 form that WireGuard's tools print.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Hex is the form of WireGuard's configuration protocol.
func (k PublicKey) Hex() string { return hex.EncodeToString(k[:]) }

// IsZero reports whether the key is unset.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// MarshalText encodes as String does.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText decodes what MarshalText wrote.
func (k *PublicKey) UnmarshalText(t []byte) error {
	p, err := ParsePublicKey(string(t))
	if err != nil {
		return err
	}
	*k = p
	return nil
}

func parseKey(s string) ([KeySize]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	// The decoder ignores line ends, so the length of the text is checked as well.
	if err != nil || len(b) != KeySize || len(s) != base64.StdEncoding.EncodedLen(KeySize) {
		return [KeySize]byte{}, ErrKey
	}
	return [KeySize]byte(b), nil
}
