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

// What WireGuard's handshake is made from (whitepaper §5.4, "Construction", "Identifier"
// and "Label-Mac1").
const (
	noiseConstruction = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
	noiseIdentifier   = "WireGuard v1 zx2c4 Jason@zx2c4.com"
	labelMAC1         = "mac1----"
)

// Where the fields of a handshake initiation (whitepaper §5.4.2) and of a response
// (§5.4.3) begin, in bytes.
const (
	initiationEphemeral = 8
	initiationStatic    = initiationEphemeral + peer.KeySize
	initiationStamp     = initiationStatic + peer.KeySize + chacha20poly1305.Overhead
	initiationMAC1      = initiationStamp + stampSize + chacha20poly1305.Overhead

	responseSize = 92
	responseMAC1 = 60
)

const (
	// stampSize is TAI64N's: 8 bytes of seconds, 4 of nanoseconds.
	stampSize = 12
	// stampBase is the TAI64 label of 1970 as WireGuard reckons, with the 10 s that TAI
	// was ahead then and no leap second since.
	stampBase = 1<<62 + 10
)

// Inspector reads handshake messages that were sent to a gateway as its device does, yet
// without the device: nothing is answered, and no replay counts. Its methods may be called
// concurrently.
type Inspector struct {
	private peer.PrivateKey
	mac1Key [blake2s.Size]byte
	// transcript is the hash before the message: of the constants and our public key.
	transcript [blake2s.Size]byte
}

// Initiation is what a handshake initiation says.
type Initiation struct {
	// ForUs is whether it was made for our public key. The rest is zero if not.
	ForUs bool
	// Static is the public key of whoever made it, and has the private one to it.
	Static peer.PublicKey
	// Stamp is the maker's clock, to 17 ms. It has to grow from one to the next.
	Stamp time.Time
}

// ErrInitiation is what inspecting something gives that no WireGuard would accept.
var ErrInitiation = errors.New("not a valid handshake initiation")

// NewInspector makes an Inspector for what was sent to the owner of the key.
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

// Initiation reads a handshake initiation. One that was made for another key is told by
// its mac1, at next to no cost; for our key it takes two multiplications on the curve,
// about 0.2 ms. Everybody who knows our public key can make ForUs true, but Static and
// Stamp only the owner of Static; somebody else may send what that one made.
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

// Response reports whether a handshake response was made for our public key, by its mac1.
// Everybody can make such a one who knows the key.
func (i *Inspector) Response(m []byte) (forUs bool) {
	return len(m) == responseSize && binary.LittleEndian.Uint32(m) == 2 && i.mac1(m, responseMAC1)
}

// mac1 reports whether the mac1 that begins at the offset is for our key (§5.4.4).
func (i *Inspector) mac1(m []byte, at int) bool {
	mac, err := blake2s.New128(i.mac1Key[:])
	if err != nil { // Only for keys of another length.
		return false
	}
	mac.Write(m[:at])
	return hmac.Equal(mac.Sum(nil), m[at:at+blake2s.Size128])
}

// mixed mixes the secret that we share with a public key into the chaining key.
func (i *Inspector) mixed(chain [blake2s.Size]byte, with peer.PublicKey) (next, key [blake2s.Size]byte, err error) {
	secret, err := i.private.SharedSecret(with)
	if err != nil { // A low-order point.
		return next, key, fmt.Errorf("%w: %w", ErrInitiation, err)
	}
	next, key = derived(chain[:], secret[:])
	return next, key, nil
}

// opened decrypts a field; the counter of each is 0.
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
	if err != nil { // Only for keys that are too long, and there is none.
		panic("tunnel: BLAKE2s without a key: " + err.Error())
	}
	return h
}

// stampTime reads TAI64N. A stamp is whatever its maker wants it to be: one of no sensible
// time gives a time that is none.
func stampTime(stamp [stampSize]byte) time.Time {
	seconds := binary.BigEndian.Uint64(stamp[:]) - stampBase
	return time.Unix(int64(seconds), int64(binary.BigEndian.Uint32(stamp[8:])))
}
