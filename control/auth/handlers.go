package auth

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
)

// hello returns who this gateway is, and what the caller may reach here.
func (s *Server) hello(_ context.Context, c *call, _ nothing) (any, error) {
	h := Hello{
		Version: ProtocolVersion, Software: s.o.Software, Name: s.o.Name,
		Capabilities: s.offered(), Offers: []string{}, Pending: c.Pending,
	}
	if c.kind() != byPeer {
		return h, nil
	}
	h.Report = s.reportFor(c.Caller)
	h.Offers = append(h.Offers, s.offers(c.Caller)...)
	h.APIServer = s.apiServer(c.Caller)
	s.setPorts(&h)
	if s.o.HeardBoot != nil {
		h.HeardBoot = s.o.HeardBoot(c.PublicKey)
	}
	return h, nil
}

// setPorts adds the overlay ports of offered services whose port is not fixed.
func (s *Server) setPorts(h *Hello) {
	if s.o.Ports == nil {
		return
	}
	for service, ports := range s.o.Ports() {
		if slices.Contains(h.Offers, service) {
			h.SetPorts(service, ports)
		}
	}
}

func (s *Server) offers(c Caller) []string {
	if s.o.Offers == nil {
		return c.Grants
	}
	return s.o.Offers(c)
}

func (s *Server) apiServer(c Caller) *APIServer {
	if s.o.APIServer == nil || !c.may(api.ServiceAPIServer) {
		return nil
	}
	return s.o.APIServer()
}

func (s *Server) issuer() Issuer {
	if s.o.Issuer == nil {
		return nil
	}
	return s.o.Issuer()
}

// redeem answers a joiner in its one-time tunnel.
func (s *Server) redeem(ctx context.Context, c *call, body redeemRequest) (any, error) {
	q, err := body.request()
	if err != nil {
		return nil, err
	}
	grant, err := s.o.Redeemer.Redeem(ctx, c.PublicKey, q)
	if err != nil {
		return nil, err
	}
	out := redeemResponse{
		spoken: speaks, Name: s.o.Name, Peer: grant.Name, Granted: grant.Allow,
		PresharedKey: grant.PresharedKey.Base64(), Pending: grant.Pending,
	}
	if !grant.Pending {
		out.APIServer = s.apiServer(Caller{Grants: grant.Allow})
	}
	return out, nil
}

// identity issues a certificate or a token for the API server.
func (s *Server) identity(ctx context.Context, c *call, body identityRequest) (any, error) {
	issuer := s.issuer()
	if issuer == nil { // removed meanwhile
		return nil, c.endpoint.missing
	}
	if issuer.Tokens() && !slices.Contains(body.Accepts, acceptToken) {
		return nil, newError(codeTokenOnly, "this gateway issues tokens, which the caller's version cannot take; upgrade the caller's gateway (or issue certificates here: spec.services.auth.issuer.localCA)")
	}
	subject := c.subject()
	if user := userWanted(issuer, subject, []byte(body.CSR)); user != "" {
		if !slices.Contains(body.Accepts, acceptGatewayUser) {
			return nil, newError(codeUserOnly, "this gateway's cluster signs requests as they are, and the caller's version cannot be told to ask for a user with this gateway's name in it; upgrade the caller's gateway (or issue otherwise here: spec.services.auth.issuer)")
		}
		return identityResponse{spoken: speaks, User: user}, nil
	}
	issued, err := issuer.Issue(ctx, subject, []byte(body.CSR))
	// The peer may have been removed while the issuer worked: then it gets nothing.
	now, known := s.o.Directory.Caller(c.from)
	if !known || now.subject() != subject || c.endpoint.admit(now) != nil {
		return nil, newError(codeDenied, "no longer a peer of this gateway")
	}
	if err != nil {
		return nil, fmt.Errorf("issue an identity: %w", err)
	}
	if !issued.Again {
		s.o.Audit.Record(ctx, audit.Issue, audit.Peer(c.Name), audit.PublicKey(c.PublicKey),
			slog.String(audit.KeySerial, issued.Serial), audit.NotAfter(issued.NotAfter))
	}
	return identityResponse{
		spoken: speaks, Certificate: string(issued.CertificatePEM), Token: string(issued.Token), NotAfter: issued.NotAfter,
	}, nil
}
