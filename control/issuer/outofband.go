package issuer

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/config"
)

// outsideAuth is auth outside the tunnel: a separate listener for the same server, whose callers
// are identified by tokens.
type outsideAuth struct {
	of   config.OutOfBand
	cert *auth.FileCertificate // nil if TLS is terminated elsewhere
	ln   net.Listener
	stop func()
}

const outsideField = "spec.services.auth.outOfBand"

// prepareOutside creates everything that can fail for auth outside the tunnel, without disturbing
// the current listener. It returns the current one if nothing has changed, nil if none is wanted.
func (s *Service) prepareOutside(ctx context.Context, cfg *config.Resolved) (*outsideAuth, error) {
	o := cfg.Services.OutOfBand
	if o == nil {
		return nil, nil
	}
	if s.outside != nil && s.outside.of == *o {
		return s.outside, nil
	}
	next := &outsideAuth{of: *o}
	if o.CertFile != "" {
		var err error
		if next.cert, err = auth.LoadCertificate(o.CertFile, o.KeyFile, s.log); err != nil {
			return nil, cfg.Blame(outsideField+".tls", err)
		}
	}
	if s.outside != nil && s.outside.of.Listen == o.Listen {
		return next, nil // the address is taken until the current one ends
	}
	if err := next.listen(ctx); err != nil {
		return nil, cfg.Blame(outsideField+".listen", err)
	}
	return next, nil
}

func (o *outsideAuth) listen(ctx context.Context) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", o.of.Listen)
	if err != nil {
		return fmt.Errorf("auth outside the tunnel cannot listen: %w", err)
	}
	if o.cert != nil {
		ln = o.cert.Listen(ln)
	}
	o.ln = ln
	return nil
}

// discard closes what was prepared and is not used.
func (s *Service) discard(next *outsideAuth) {
	if next != nil && next != s.outside && next.ln != nil {
		_ = next.ln.Close()
	}
}

// useOutside switches to next and closes the previous one. The caller holds the registry's lock.
func (s *Service) useOutside(next *outsideAuth) {
	if next == s.outside {
		return
	}
	if s.outside != nil {
		s.outside.stop()
	}
	s.outside = nil
	if next == nil {
		return
	}
	if next.ln == nil {
		if err := next.listen(context.Background()); err != nil {
			s.log.Error("cannot serve auth outside the tunnel", "error", err)
			return
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.server.OutOfBand(s.tokens).Serve(ctx, next.ln); err != nil {
			s.log.Error("auth server outside the tunnel failed", "error", err)
		}
	}()
	next.stop = func() { cancel(); <-done }
	s.outside = next
	s.log.Info("serving auth outside the tunnel", "address", next.ln.Addr().String(), "tls", next.cert != nil)
}

// PeerToken issues a token that identifies a peer to auth outside the tunnel.
func (s *Service) PeerToken(ctx context.Context, name string, r api.PeerTokenRequest) (api.PeerTokenResponse, error) {
	m, err := s.peers.Member(name)
	if err != nil {
		return api.PeerTokenResponse{}, err
	}
	switch {
	case s.peers.Config().Services.OutOfBand == nil:
		return api.PeerTokenResponse{}, admin.Conflict("this gateway's auth does not answer outside the tunnel, so a token is good for nothing", "set "+outsideField)
	case m.Stock:
		return api.PeerTokenResponse{}, admin.Usage("a stock WireGuard peer cannot use auth", "")
	case m.Pending:
		return api.PeerTokenResponse{}, admin.Conflict(fmt.Sprintf("peer %s has yet to be approved", name), "postern peer approve "+name)
	}
	ttl := time.Duration(r.TTL)
	if ttl == 0 {
		ttl = auth.DefaultDirectTTL
	}
	token, notAfter, err := s.tokens.Make(m.Key, time.Now(), ttl)
	if err != nil {
		return api.PeerTokenResponse{}, admin.Usage(err.Error(), "")
	}
	s.o.Audit.Record(ctx, audit.Issue, audit.Peer(m.Name), audit.PublicKey(m.Key), audit.NotAfter(notAfter),
		audit.Reason("a token for auth outside the tunnel"))
	return api.PeerTokenResponse{Token: string(token), NotAfter: notAfter}, nil
}
