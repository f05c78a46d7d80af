package probe

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	keyLabel  = "postern probe v1"
	macSize   = 32 // bytes of an HMAC key
	keyIDSize = 8  // bytes
)

// keyID identifies the keys of a request on the wire.
type keyID [keyIDSize]byte

// keys authenticate requests in one direction, and the responses to them. They do not change once
// used.
type keys struct {
	peer           *peerState // the peer that may use them, for incoming ones
	id             keyID
	request, reply [macSize]byte
	// initial keys have no boot id and generation.
	initial    bool
	boot       uint64
	generation uint16
}

// schedule derives the keys between two gateways.
type schedule struct {
	prk         []byte
	own, remote peer.PublicKey
}

// newSchedule fails for a public key that gives everyone the same secret.
func newSchedule(own peer.PrivateKey, p Peer) (schedule, error) {
	pub := own.Public()
	if p.Key == pub {
		return schedule{}, fmt.Errorf("%w: %s is this gateway's own", ErrKey, p.Key)
	}
	secret, err := own.SharedSecret(p.Key)
	if err != nil {
		return schedule{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	psk, err := hex.DecodeString(p.PresharedKey.Hex())
	if err != nil {
		return schedule{}, fmt.Errorf("%w: preshared key of %s: %w", ErrKey, p.Key, err)
	}
	prk, err := hkdf.Extract(sha256.New, secret[:], psk)
	if err != nil {
		return schedule{}, fmt.Errorf("%w: derive from %s: %w", ErrKey, p.Key, err)
	}
	return schedule{prk, pub, p.Key}, nil
}

// salt is the salt of a generation's keys.
func salt(boot uint64, generation uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, boot), generation)
}

// derive derives the keys of our requests, or of the peer's. An empty salt gives the initial
// keys.
func (s schedule) derive(ours bool, salt []byte) *keys {
	low, high, direction := s.own, s.remote, byte(0)
	if bytes.Compare(low[:], high[:]) > 0 {
		low, high = high, low
	}
	if (s.own == low) != ours {
		direction = 1
	}
	info := append([]byte(keyLabel), low[:]...)
	info = append(info, high[:]...)
	info = append(info, direction)
	info = append(info, salt...)
	// It fails only for more than 255 hashes, or for a PRK that is too short in FIPS mode.
	out, err := hkdf.Expand(sha256.New, s.prk, string(info), 2*macSize+keyIDSize)
	if err != nil {
		panic("probe: HKDF-Expand of a fixed length failed: " + err.Error())
	}
	k := &keys{initial: len(salt) == 0}
	copy(k.request[:], out)
	copy(k.reply[:], out[macSize:])
	copy(k.id[:], out[2*macSize:])
	return k
}

// generation derives the keys of a generation.
func (s schedule) generation(ours bool, boot uint64, generation uint16) *keys {
	k := s.derive(ours, salt(boot, generation))
	k.boot, k.generation = boot, generation
	return k
}
