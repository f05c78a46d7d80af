// Package handshake makes WireGuard handshake initiations for tests, with any sender, recipient
// and timestamp, unlike a real device. Messages and key derivation follow the WireGuard
// whitepaper, sections 5.4 and 5.4.2.
package handshake

import (
	"crypto/hmac"
	"encoding/binary"
	"fmt"
	"hash"
	"time"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	construction = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
	identifier   = "WireGuard v1 zx2c4 Jason@zx2c4.com"
	labelMAC1    = "mac1----"

	typeInitiation = 1
	// sender is the sender index. Responses to it are not processed.
	sender = 0x1234
	// tai64 is 1970 in TAI64 labels (https://cr.yp.to/libtai/tai64.html) without leap seconds, as
	// in WireGuard implementations.
	tai64 = 0x400000000000000a
)

// Initiation returns an initiation by the owner of from for the owner of to, with the given
// timestamp. It has no mac2, which is only needed under load.
func Initiation(from, ephemeral peer.PrivateKey, to peer.PublicKey, stamp time.Time) ([]byte, error) {
	n := noise{chain: sum([]byte(construction))}
	n.transcript = sum(n.chain[:], []byte(identifier))
	n.mix(to[:])
	public, static := ephemeral.Public(), from.Public()
	m := binary.LittleEndian.AppendUint32(nil, typeInitiation)
	m = binary.LittleEndian.AppendUint32(m, sender)
	m = append(m, public[:]...)
	n.mix(public[:])
	n.derive(public[:])

	for _, part := range []struct {
		secret peer.PrivateKey
		plain  []byte
	}{{ephemeral, static[:]}, {from, tai64n(stamp)}} {
		shared, err := part.secret.SharedSecret(to)
		if err != nil {
			return nil, fmt.Errorf("make an initiation: %w", err)
		}
		field, err := n.seal(n.derive(shared[:]), part.plain)
		if err != nil {
			return nil, fmt.Errorf("make an initiation: %w", err)
		}
		m = append(m, field...)
	}
	key := sum([]byte(labelMAC1), to[:])
	mac1, err := blake2s.New128(key[:])
	if err != nil {
		return nil, fmt.Errorf("make an initiation: %w", err)
	}
	mac1.Write(m)
	return append(mac1.Sum(m), make([]byte, blake2s.Size128)...), nil
}

// noise is the state of a handshake: chaining key and transcript hash.
type noise struct{ chain, transcript [blake2s.Size]byte }

// mix adds part to the transcript.
func (n *noise) mix(part []byte) { n.transcript = sum(n.transcript[:], part) }

// derive advances the chaining key and returns the derived key.
func (n *noise) derive(input []byte) []byte {
	extracted := keyed(n.chain[:], input)
	chain := keyed(extracted, []byte{1})
	copy(n.chain[:], chain)
	return keyed(extracted, append(chain, 2))
}

// seal encrypts a field of the message and adds it to the transcript.
func (n *noise) seal(key, plain []byte) ([]byte, error) {
	aead, err := chacha20poly1305.New(key)
	if err != nil {
		return nil, err
	}
	field := aead.Seal(nil, make([]byte, chacha20poly1305.NonceSize), plain, n.transcript[:])
	n.mix(field)
	return field, nil
}

func sum(parts ...[]byte) [blake2s.Size]byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return blake2s.Sum256(all)
}

// keyed is HMAC-BLAKE2s, on which the whitepaper's KDF is based (RFC 5869).
func keyed(key, input []byte) []byte {
	h := hmac.New(func() hash.Hash {
		h, err := blake2s.New256(nil)
		if err != nil {
			panic(err) // without a key it cannot fail
		}
		return h
	}, key)
	h.Write(input)
	return h.Sum(nil)
}

// tai64n returns the external form of a timestamp, 12 bytes.
func tai64n(t time.Time) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(tai64+t.Unix()))
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}
