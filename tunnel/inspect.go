package tunnel

import (
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"time"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Constants of WireGuard's handshake (whitepaper §5.4, "Construction", "Identifier" and
// "Label-Mac1").
const (
	noiseConstruction = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
	noiseIdentifier   = "WireGuard v1 zx2c4 Jason@zx2c4.com"
	labelMAC1         = "mac1----"
)

// Offsets of the fields in a handshake initiation (whitepaper §5.4.2) and a response (§5.4.3), in
// bytes.
const (
	initiationEphemeral = 8
	initiationStatic    = initiationEphemeral + peer.KeySize
	initiationStamp     = initiationStatic + peer.KeySize + chacha20poly1305.Overhead
	initiationMAC1      = initiationStamp + stampSize + chacha20poly1305.Overhead

	responseSize = 92
	responseMAC1 = 60
)

const (
	// stampSize is the size of a TAI64N timestamp: 8 bytes of seconds, 4 of nanoseconds.
	stampSize = 12
	// stampBase is the TAI64 label of 1970 as WireGuard computes it: with the 10 s that TAI was
	// ahead then, and no leap seconds since.
	stampBase = 1<<62 + 10
)

// Inspector reads handshake messages to a gateway as its device does, but without the device: it
// answers nothing and has no replay protection. It is safe for concurrent use.
type Inspector struct {
	private peer.PrivateKey
	mac1Key [blake2s.Size]byte
	// transcript is the hash before the message: of the constants and our public key.
	transcript [blake2s.Size]byte
}

// Initiation is the content of a handshake initiation.
type Initiation struct {
	// ForUs is whether it was made for our public key. If not, the rest is zero.
	ForUs bool
	// Static is the public key of the sender, who has proved to have the private one.
	Static peer.PublicKey
	// Stamp is the sender's clock, to 17 ms. It has to grow with each initiation.
	Stamp time.Time
}

// ErrInitiation is returned for a message that no WireGuard would accept.
var ErrInitiation = errors.New("not a valid handshake initiation")

// NewInspector returns an Inspector for messages to the owner of the key.
func NewInspector(private peer.PrivateKey) *Inspector {
	public := private.Public()
	construction := hashed([]byte(noiseConstruction))
	identifier := hashed(construction[:], []byte(noiseIdentifier))
	return &Inspector{
		private:    private,
		mac1Key:    hashed([]byte(labelMAC1), public[:]),
		transcript: hashed(identifier[:], public[:]),
	}
}

// Initiation reads a handshake initiation. One made for another key is rejected by its mac1, at
// hardly any cost; one for our key takes two multiplications on the curve, about 0.2 ms. Everyone
// who knows our public key can make ForUs true, but only the owner of Static can make Static and
// Stamp. Anyone may replay such a message.
func (i *Inspector) Initiation(m []byte) (Initiation, error) {
	if len(m) != handshake.InitiationSize || binary.LittleEndian.Uint32(m) != 1 {
		return Initiation{}, fmt.Errorf("%w: want 148 bytes of type 1", ErrInitiation)
	}
	if !i.mac1(m, initiationMAC1) {
		return Initiation{}, nil
	}
	in := Initiation{ForUs: true}
	ephemeral := peer.PublicKey(m[initiationEphemeral:initiationStatic])
	static, stamp := m[initiationStatic:initiationStamp], m[initiationStamp:initiationMAC1]

	construction := hashed([]byte(noiseConstruction))
	chain, _ := derived(construction[:], ephemeral[:])
	transcript := hashed(i.transcript[:], ephemeral[:])
	chain, key, err := i.mixed(chain, ephemeral)
	if err != nil {
		return in, err
	}
	plain, err := opened(key, static, transcript)
	if err != nil {
		return in, fmt.Errorf("%w: its static key does not decrypt", ErrInitiation)
	}
	from := peer.PublicKey(plain)
	transcript = hashed(transcript[:], static)
	if _, key, err = i.mixed(chain, from); err != nil {
		return in, err
	}
	if plain, err = opened(key, stamp, transcript); err != nil {
		return in, fmt.Errorf("%w: its timestamp does not decrypt", ErrInitiation)
	}
	in.Static, in.Stamp = from, stampTime([stampSize]byte(plain))
	return in, nil
}

// Response reports whether a handshake response was made for our public key, by its mac1. Everyone
// who knows the key can make one.
func (i *Inspector) Response(m []byte) (forUs bool) {
	return len(m) == responseSize && binary.LittleEndian.Uint32(m) == 2 && i.mac1(m, responseMAC1)
}

// mac1 reports whether the mac1 at the offset is for our key (§5.4.4).
func (i *Inspector) mac1(m []byte, at int) bool {
	mac, err := blake2s.New128(i.mac1Key[:])
	if err != nil { // only for keys of another length
		return false
	}
	mac.Write(m[:at])
	return hmac.Equal(mac.Sum(nil), m[at:at+blake2s.Size128])
}

// mixed mixes the secret shared with a public key into the chaining key.
func (i *Inspector) mixed(chain [blake2s.Size]byte, with peer.PublicKey) (next, key [blake2s.Size]byte, err error) {
	secret, err := i.private.SharedSecret(with)
	if err != nil { // a low-order point
		return next, key, fmt.Errorf("%w: %w", ErrInitiation, err)
	}
	next, key = derived(chain[:], secret[:])
	return next, key, nil
}

// opened decrypts a field; each has the counter 0.
func opened(key [blake2s.Size]byte, field []byte, transcript [blake2s.Size]byte) ([]byte, error) {
	aead, err := chacha20poly1305.New(key[:])
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, make([]byte, chacha20poly1305.NonceSize), field, transcript[:])
}

// hashed is Hash of the concatenation.
func hashed(parts ...[]byte) (sum [blake2s.Size]byte) {
	h := newHash()
	for _, p := range parts {
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum
}

// derived is Kdf2(key, input), whose first part is Kdf1.
func derived(key, input []byte) (first, second [blake2s.Size]byte) {
	secret := keyed(key, input)
	first = keyed(secret[:], []byte{1})
	second = keyed(secret[:], first[:], []byte{2})
	return first, second
}

// keyed is Hmac of the concatenation.
func keyed(key []byte, parts ...[]byte) (sum [blake2s.Size]byte) {
	h := hmac.New(newHash, key)
	for _, p := range parts {
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum
}

func newHash() hash.Hash {
	h, err := blake2s.New256(nil)
	if err != nil { // only for keys that are too long
		panic("tunnel: BLAKE2s without a key: " + err.Error())
	}
	return h
}

// stampTime reads a TAI64N timestamp. The sender may write anything: nonsense gives the zero time.
func stampTime(stamp [stampSize]byte) time.Time {
	seconds := binary.BigEndian.Uint64(stamp[:]) - stampBase
	return time.Unix(int64(seconds), int64(binary.BigEndian.Uint32(stamp[8:])))
}
