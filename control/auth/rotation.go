package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"

	"github.com/postern-dev/postern/tunnel/peer"
)

// rotationRequest announces the caller's next key. The tunnel, under the current key, proves that
// it comes from the caller. Proof shows that the caller has the next key: public keys are not
// secret, and another's must not become a peer's.
type rotationRequest struct {
	spoken
	PublicKey    string `json:"publicKey" max:"64"`
	PresharedKey string `json:"presharedKey,omitempty" max:"64"`
	// Proof is the result of [RotationProof].
	Proof []byte `json:"proof" max:"64"`
}

// RotationProof is an HMAC-SHA256 of the announcement, keyed with X25519(private, public), which
// only the holders of the next key and of the receiving gateway's key can compute. The announcement
// is the text "postern rotation v1", the current and the next public key, 32 bytes each, and the
// preshared key in hexadecimal. It fails for a public key of low order.
func RotationProof(private peer.PrivateKey, public, present, next peer.PublicKey, psk peer.PresharedKey) ([]byte, error) {
	shared, err := private.SharedSecret(public)
	if err != nil {
		return nil, fmt.Errorf("prove the next key: %w", err)
	}
	h := hmac.New(sha256.New, shared[:])
	h.Write([]byte("postern rotation v1"))
	h.Write(present[:])
	h.Write(next[:])
	h.Write([]byte(psk.Hex()))
	return h.Sum(nil), nil
}

// Announcement announces a peer's next key.
type Announcement struct {
	// From is the current key, Next the next one with its preshared key.
	From, Next peer.PublicKey
	PSK        peer.PresharedKey
	// Proof must equal the result of [RotationProof].
	Proof []byte
}

// rotation handles a peer's next key. It costs a write, like an identity, and has the same limits.
func (s *Server) rotation(ctx context.Context, c *call, q rotationRequest) (any, error) {
	next, err := peer.ParsePublicKey(q.PublicKey)
	if err != nil {
		return nil, newError(codeBadRequest, "publicKey: no WireGuard key")
	}
	var psk peer.PresharedKey
	if q.PresharedKey != "" { // a peer configured in a file without one cannot agree on one
		psk, err = peer.ParsePresharedKey(q.PresharedKey)
	}
	if err != nil {
		return nil, newError(codeBadRequest, "presharedKey: none that can be used")
	}
	err = s.o.OnRotation(ctx, Announcement{From: c.PublicKey, Next: next, PSK: psk, Proof: q.Proof})
	switch {
	case errors.Is(err, ErrConfigured):
		return nil, newError(codeConfigured, clean(err.Error(), maxMessage))
	case errors.Is(err, ErrRequest):
		return nil, newError(codeBadRequest, clean(err.Error(), maxMessage))
	case err != nil:
		return nil, err
	}
	return taken{speaks}, nil
}

// Rotate announces the next key of this gateway. After it has succeeded the peer accepts either
// key, until the next one is used. It may be repeated. An [ErrConfigured] says that the peer's
// operator has to enter the key.
func (c *Client) Rotate(ctx context.Context, a Announcement) error {
	var out taken
	q := rotationRequest{spoken: speaks, PublicKey: a.Next.String(), Proof: a.Proof}
	if !a.PSK.IsZero() {
		q.PresharedKey = a.PSK.Base64()
	}
	return c.do(ctx, http.MethodPost, pathRotation, q, &out)
}
