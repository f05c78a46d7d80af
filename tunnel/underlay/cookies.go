package underlay

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"hash"
	"time"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	macSize = blake2s.Size128
	// cookieLifetime is how long a cookie is accepted (whitepaper §5.4.7).
	cookieLifetime = 2 * time.Minute

	labelMAC1   = "mac1----"
	labelCookie = "cookie--"
)

// cookies checks the two MACs of initiations and responses, and makes cookie replies, as the
// receiver of the messages (whitepaper §5.4.4, §5.4.7). All keys derive from the public key, except
// the secret for cookies.
//
// A flood keeps it busy, so it reuses its states and buffers. It allocates only for cookies that
// are shown, and hardly anything for replies. It is not safe for concurrent use.
type cookies struct {
	mac1   hash.Hash
	sealed cipher.AEAD // of cookie replies

	secret hash.Hash // nil before the first cookie
	made   time.Time // the secret

	source []byte
	cookie [macSize]byte
	sum    [macSize]byte
	nonce  [chacha20poly1305.NonceSizeX]byte
}

func newCookies(k peer.PublicKey) (*cookies, error) {
	mac1 := blake2s.Sum256(append([]byte(labelMAC1), k[:]...))
	sealing := blake2s.Sum256(append([]byte(labelCookie), k[:]...))
	c := new(cookies)
	var err error
	if c.mac1, err = blake2s.New128(mac1[:]); err != nil {
		return nil, fmt.Errorf("set up BLAKE2s: %w", err)
	}
	if c.sealed, err = chacha20poly1305.NewX(sealing[:]); err != nil {
		return nil, fmt.Errorf("set up XChaCha20-Poly1305: %w", err)
	}
	return c, nil
}

// forUs reports whether a message was made for our public key, by its mac1.
func (c *cookies) forUs(m []byte) bool {
	body := len(m) - 2*macSize
	c.mac1.Reset()
	c.mac1.Write(m[:body])
	return subtle.ConstantTimeCompare(c.mac1.Sum(c.sum[:0]), m[body:body+macSize]) == 1
}

// shown reports whether a message shows the cookie that was sent to its source, by its mac2.
func (c *cookies) shown(m []byte, from peer.Path, now time.Time) bool {
	body := len(m) - macSize
	if [macSize]byte(m[body:]) == ([macSize]byte{}) || c.secret == nil || now.Sub(c.made) > cookieLifetime {
		return false
	}
	c.bake(from)
	mac2, err := blake2s.New128(c.cookie[:])
	if err != nil {
		return false
	}
	mac2.Write(m[:body])
	return subtle.ConstantTimeCompare(mac2.Sum(c.sum[:0]), m[body:]) == 1
}

// reply writes to r the message that gives the sender of m the cookie for its source.
func (c *cookies) reply(m []byte, from peer.Path, now time.Time, r *[sizeCookieReply]byte) error {
	if c.secret == nil || now.Sub(c.made) > cookieLifetime {
		if err := c.renew(now); err != nil {
			return err
		}
	}
	c.bake(from)
	if _, err := rand.Read(c.nonce[:]); err != nil {
		return fmt.Errorf("random nonce: %w", err)
	}
	binary.LittleEndian.PutUint32(r[:], typeCookieReply)
	copy(r[4:8], m[4:8]) // their sender_index is our receiver_index
	copy(r[8:], c.nonce[:])
	mac1 := m[len(m)-2*macSize : len(m)-macSize]
	c.sealed.Seal(r[8:8+len(c.nonce)], c.nonce[:], c.cookie[:], mac1)
	return nil
}

// bake computes the cookie of a path.
func (c *cookies) bake(from peer.Path) {
	addr := from.Remote.Addr().As16()
	c.source = binary.LittleEndian.AppendUint16(append(c.source[:0], addr[:]...), from.Remote.Port())
	c.source = append(append(c.source, from.Remote.Addr().Zone()...), 0)
	c.source = append(c.source, from.Via...)
	c.secret.Reset()
	c.secret.Write(c.source)
	c.secret.Sum(c.cookie[:0])
}

func (c *cookies) renew(now time.Time) error {
	var key [blake2s.Size]byte
	if _, err := rand.Read(key[:]); err != nil {
		return fmt.Errorf("random cookie secret: %w", err)
	}
	secret, err := blake2s.New128(key[:])
	if err != nil {
		return fmt.Errorf("set up BLAKE2s: %w", err)
	}
	c.secret, c.made = secret, now
	return nil
}
