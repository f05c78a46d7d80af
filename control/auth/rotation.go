package auth

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// rotationRequest announces the caller's next key. It is under the present one that it
// arrives, which is all the proof that there is, and all that is needed: whoever announces
// a key that it does not have shuts itself out.
type rotationRequest struct {
	Version      string `json:"version"`
	PublicKey    string `json:"publicKey"`
	PresharedKey string `json:"presharedKey,omitempty"`
}

type rotationAnswer struct {
	Version string `json:"version"`
}

// rotation takes a peer's next key. Announcing costs a write, as an identity does, and is
// bounded as those are.
func (s *Server) rotation(ctx context.Context, r *http.Request, caller Caller, a *allowance) (any, error) {
	switch {
	case s.o.OnRotation == nil:
		return nil, newError(codeNotFound, "this gateway takes no other key of a peer")
	case caller.Kind != KindPeer:
		return nil, newError(codeDenied, "only for peers")
	case caller.Pending:
		return nil, newError(codePending, "the caller's key has yet to be approved")
	}
	if wait := spend(a.rotations, time.Now()); wait > 0 {
		return nil, limited(wait)
	}
	var q rotationRequest
	if err := readJSON(r, &q); err != nil {
		return nil, err
	}
	if err := checkVersion(q.Version, "the caller"); err != nil {
		return nil, err
	}
	next, err := peer.ParsePublicKey(q.PublicKey)
	if err != nil {
		return nil, newError(codeBadRequest, "publicKey: no WireGuard key")
	}
	var psk peer.PresharedKey
	if q.PresharedKey != "" { // a peer whose file has none cannot agree on one
		psk, err = peer.ParsePresharedKey(q.PresharedKey)
	}
	if err != nil {
		return nil, newError(codeBadRequest, "presharedKey: none that can be used")
	}
	err = s.o.OnRotation(ctx, caller.PublicKey, next, psk)
	switch {
	case errors.Is(err, ErrConfigured):
		return nil, newError(codeConfigured, clean(err.Error(), maxMessage))
	case errors.Is(err, ErrRequest):
		return nil, newError(codeBadRequest, clean(err.Error(), maxMessage))
	case err != nil:
		return nil, err
	}
	return rotationAnswer{Version: ProtocolVersion}, nil
}

// Rotate announces the key that this gateway will have. After it has succeeded the peer
// takes either key, until the next one is used. The same may be announced again. An
// [ErrConfigured] says that the peer's operator has to enter the key.
func (c *Client) Rotate(ctx context.Context, next peer.PublicKey, psk peer.PresharedKey) error {
	var out rotationAnswer
	q := rotationRequest{Version: ProtocolVersion, PublicKey: next.String()}
	if !psk.IsZero() {
		q.PresharedKey = psk.Base64()
	}
	if err := c.do(ctx, http.MethodPost, pathRotation, q, &out); err != nil {
		return err
	}
	return checkAnswerVersion(out.Version)
}
