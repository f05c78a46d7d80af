package auth

import (
	"context"
	"encoding/json"
	"net/http"
)

// MaxPathMessage bounds a path message, in bytes of JSON.
const MaxPathMessage = 32 << 10

// path handles a message from the caller's path finder. It is open to every peer regardless of
// grants: without it the two might not find a path at all.
func (s *Server) path(_ context.Context, c *call, m message) (any, error) {
	if err := s.o.OnPath(c.PublicKey, m); err != nil {
		return nil, newError(codeBadRequest, "path message: "+clean(err.Error(), 120))
	}
	return taken{speaks}, nil
}

// Path sends a message to the peer's path finder. A gateway without one answers an ErrRequest.
func (c *Client) Path(ctx context.Context, message []byte) error {
	var out taken
	return c.do(ctx, http.MethodPost, pathPath, json.RawMessage(message), &out)
}
