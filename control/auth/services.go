package auth

import (
	"context"
	"net/http"

	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/mcs"
)

// servicesAnswer is the answer to a part of a catalogue.
type servicesAnswer struct {
	spoken
	// Has is the version of the catalogue that the reader has; empty if none.
	Has string `json:"has,omitempty" max:"64"`
}

// services handles a part of the caller's catalogue of services. It is open to every peer
// regardless of grants: the imports decide what is used of it.
func (s *Server) services(_ context.Context, c *call, m message) (any, error) {
	var head spoken // with another major version the rest may mean something else
	if err := bounded.Unmarshal(m, mcs.MaxMessage, &head); err != nil {
		return nil, newError(codeBadRequest, "services: "+err.Error())
	}
	if err := checkVersion(head.Version, "the caller"); err != nil {
		return nil, err
	}
	has, err := s.o.OnServices(c.PublicKey, m)
	if err != nil {
		return nil, newError(codeBadRequest, "services: "+clean(err.Error(), 120))
	}
	return servicesAnswer{speaks, has}, nil
}

// Services sends a part of the catalogue of services to the peer, and returns the version that it
// has. A gateway that supports none answers an ErrRequest.
func (c *Client) Services(ctx context.Context, m mcs.Message) (has string, err error) {
	m.Version = ProtocolVersion
	var out servicesAnswer
	if err := c.do(ctx, http.MethodPost, pathServices, m, &out); err != nil {
		return "", err
	}
	return out.Has, nil
}
