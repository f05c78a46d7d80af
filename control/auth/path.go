package auth

import (
	"context"
	"encoding/json"
	"net/http"
)

// pathAnswer says that a message was taken.
type pathAnswer struct {
	Version string `json:"version"`
}

// path takes a message of the caller's path finder. It is open to every peer whatever
// it is granted: without it the two might not find a path at all.
func (s *Server) path(r *http.Request, caller Caller) (any, error) {
	switch {
	case s.o.OnPath == nil:
		return nil, newError(codeNotFound, "this gateway finds no paths")
	case caller.Kind != KindPeer:
		return nil, newError(codeDenied, "only for peers")
	case caller.Pending:
		return nil, newError(codePending, "the caller's key has yet to be approved")
	}
	var message json.RawMessage
	if err := readJSON(r, &message); err != nil {
		return nil, err
	}
	if err := s.o.OnPath(caller.PublicKey, message); err != nil {
		return nil, newError(codeBadRequest, "path message: "+clean(err.Error(), 120))
	}
	return pathAnswer{Version: ProtocolVersion}, nil
}

// Path hands a message to the peer's path finder. A gateway that finds no paths answers
// an ErrRequest.
func (c *Client) Path(ctx context.Context, message []byte) error {
	var out pathAnswer
	if err := c.do(ctx, http.MethodPost, pathPath, json.RawMessage(message), &out); err != nil {
		return err
	}
	return checkAnswerVersion(out.Version)
}
