package auth

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
)

func (s *Server) hello(c Caller) Hello {
	h := Hello{
		Version: ProtocolVersion, Software: s.o.Software, Name: s.o.Name,
		Capabilities: []string{}, Offers: []string{}, Pending: c.Pending,
	}
	if s.o.Redeemer != nil {
		h.Capabilities = append(h.Capabilities, CapabilityRedeem)
	}
	if i := s.issuer(); i != nil {
		h.Capabilities = append(h.Capabilities, CapabilityIdentity)
		if i.Tokens() {
			h.Capabilities = append(h.Capabilities, CapabilityToken)
		}
	}
	if s.o.OnPath != nil {
		h.Capabilities = append(h.Capabilities, CapabilityPath)
	}
	if s.o.OnReport != nil {
		h.Capabilities = append(h.Capabilities, CapabilityReport)
	}
	if c.Kind == KindPeer && !c.Pending {
		h.Capabilities = append(h.Capabilities, CapabilityThroughput)
		if s.o.OnRotation != nil {
			h.Capabilities = append(h.Capabilities, CapabilityRotation)
		}
		h.Report = s.reportFor(c)
		h.Offers = append(h.Offers, s.offers(c)...)
		h.APIServer = s.apiServer(c)
		h.Ports = s.ports(h.Offers)
		if s.o.HeardBoot != nil {
			h.HeardBoot = s.o.HeardBoot(c.PublicKey)
		}
	}
	return h
}

// ports are the overlay ports of those services offered whose port is not fixed.
func (s *Server) ports(offers []string) map[string]uint16 {
	if s.o.Ports == nil {
		return nil
	}
	out := map[string]uint16{}
	for service, port := range s.o.Ports() {
		if slices.Contains(offers, service) {
			out[service] = port
		}
	}
	return out
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
func (s *Server) redeem(ctx context.Context, r *http.Request, c Caller) (any, error) {
	if c.Kind != KindOneTime || s.o.Redeemer == nil {
		s.o.Audit.Record(ctx, audit.Refuse, audit.Peer(c.Name), audit.PublicKey(c.PublicKey),
			slog.String(audit.KeyRequest, pathRedeem), audit.Reason("a redemption that did not come through a ticket's tunnel"))
		return nil, newError(codeDenied, "tickets are redeemed through their own tunnel")
	}
	var body redeemRequest
	if err := readJSON(r, &body); err != nil {
		return nil, err
	}
	if err := checkVersion(body.Version, "the joiner"); err != nil {
		return nil, err
	}
	q, err := body.request()
	if err != nil {
		return nil, err
	}
	grant, err := s.o.Redeemer.Redeem(ctx, c.PublicKey, q)
	if err != nil {
		return nil, err
	}
	out := redeemResponse{
		Version: ProtocolVersion, Name: s.o.Name, Peer: grant.Name, Granted: grant.Allow,
		PresharedKey: grant.PresharedKey.Base64(), Pending: grant.Pending,
	}
	if !grant.Pending {
		out.APIServer = s.apiServer(Caller{Grants: grant.Allow})
	}
	return out, nil
}

// identity issues a certificate or a token for the API server to a peer that may reach
// both auth and the API server.
func (s *Server) identity(ctx context.Context, r *http.Request, from netip.Addr, c Caller, a *allowance) (any, error) {
	if err := mayHaveIdentity(c); err != nil {
		return nil, err
	}
	issuer := s.issuer()
	if issuer == nil {
		return nil, newError(codeNoIssuer, "this gateway issues no identities (spec.services.auth.issuer is not set)")
	}
	if wait := spend(a.identities, time.Now()); wait > 0 {
		return nil, limited(wait)
	}
	var body identityRequest
	if err := readJSON(r, &body); err != nil {
		return nil, err
	}
	if err := checkVersion(body.Version, "the caller"); err != nil {
		return nil, err
	}
	if issuer.Tokens() && !slices.Contains(body.Accepts, acceptToken) {
		return nil, newError(codeTokenOnly, "this gateway issues tokens, which the caller's version cannot take; upgrade the caller's gateway (or issue certificates here: spec.services.auth.issuer.localCA)")
	}
	subject := Subject{Name: c.Name, PublicKey: c.PublicKey}
	if user := userWanted(issuer, subject, []byte(body.CSR)); user != "" {
		if !slices.Contains(body.Accepts, acceptUser) {
			return nil, newError(codeUserOnly, "this gateway's cluster signs requests as they are, and the caller's version cannot be told what to ask for; upgrade the caller's gateway (or issue otherwise here: spec.services.auth.issuer)")
		}
		return identityResponse{Version: ProtocolVersion, User: user}, nil
	}
	issued, err := issuer.Issue(ctx, subject, []byte(body.CSR))
	// The peer may have been removed while the issuer worked: then it gets nothing.
	now, known := s.o.Directory.Caller(from)
	if !known || now.PublicKey != c.PublicKey || now.Name != c.Name || mayHaveIdentity(now) != nil {
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
		Version: ProtocolVersion, Certificate: string(issued.CertificatePEM), Token: string(issued.Token), NotAfter: issued.NotAfter,
	}, nil
}

func mayHaveIdentity(c Caller) error {
	switch {
	case c.Kind != KindPeer:
		return newError(codeDenied, "a ticket gives no identity; redeem it first")
	case c.Pending:
		return newError(codePending, "this peer has yet to be approved here (`postern peer approve "+c.Name+"`)")
	case !c.may(api.ServiceAuth):
		return newError(codeNotGranted, "the service auth is not granted to this peer (`postern peer allow "+c.Name+" auth,apiServer`)")
	case !c.may(api.ServiceAPIServer):
		return newError(codeNotGranted, "the service apiServer is not granted to this peer, so it needs no identity (`postern peer allow "+c.Name+" auth,apiServer`)")
	}
	return nil
}
