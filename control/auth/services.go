package auth

import (
	"context"
	"net/http"

	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/mcs"
)

// servicesAnswer is what a reader of a catalogue says to a part of it.
type servicesAnswer struct {
	spoken
	// Has is the version of the catalogue that it has by now; empty where it has none.
	Has string `json:"has,omitempty" max:"64"`
}

// services takes a part of the caller's catalogue of services. It is open to every peer whatever it is
// granted: what of it is used is decided by what is imported from it.
func (s *Server) services(_ context.Context, c *call, m message) (any, error) {
	var head spoken // of another major version the rest may mean something else
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

// Services hands a part of the catalogue of services to the peer, and gives the version that it has
// by then. A gateway that takes none answers an ErrRequest.
func (c *Client) Services(ctx context.Context, m mcs.Message) (has string, err error) {
	m.Version = ProtocolVersion
	var out servicesAnswer
	if err := c.do(ctx, http.MethodPost, pathServices, m, &out); err != nil {
		return "", err
	}
	return out.Has, nil
}
