package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/roster"
)

// authService is the in-band auth server with what it needs of the gateway. It is the
// server's Directory.
type authService struct {
	g        *Gateway
	listener *forward.Listener
	server   *auth.Server
	tokens   *auth.DirectTokens
	issuer   atomic.Pointer[auth.Issuer]
	cancel   context.CancelFunc
	done     chan struct{}
	caMark   lastMark // of the API server's authorities

	// Owned by whoever holds changing: the issuer in the cluster while it runs, nil when the
	// issuer is none, and what it was made of.
	outside     *outsideAuth // nil when auth answers inside the tunnel alone
	cluster     ClusterIssuer
	clusterOf   clusterOf
	stopCluster func()
}

// ClusterIssuer issues identities that live in the gateway's own cluster, where they are
// removed as well.
type ClusterIssuer interface {
	auth.Issuer
	// SetPeers says who may have an identity. It does not wait.
	SetPeers(peers []auth.Subject)
	// Run removes the identities of all others until ctx ends. It is called once.
	Run(ctx context.Context)
}

// ClusterIssuerOptions are what spec.services.auth.issuer says of serviceAccount or csr, and
// whose it is.
type ClusterIssuerOptions struct {
	Gateway string
	// Namespace is that of the accounts. CSR asks for certificates instead of tokens.
	Namespace string
	CSR       bool
	TTL       time.Duration
	// Ledger remembers which certificates were issued.
	Ledger auth.Ledger
	// Report takes what keeps the issuer from issuing, and does not block.
	Report func([]check.OwnProblem)
	Logger *slog.Logger
}

// clusterOf is what an issuer in the cluster is made of.
type clusterOf struct {
	namespace string
	csr       bool
	ttl       time.Duration
}

// clusterIssuerOf is the issuer in the cluster that a configuration wants, if it does, and
// the field that says so.
func clusterIssuerOf(cfg *config.Resolved) (of clusterOf, field string) {
	switch s := cfg.Services; {
	case s.ServiceAccount != nil:
		return clusterOf{namespace: s.ServiceAccount.Namespace, ttl: s.ServiceAccount.TTL}, "spec.services.auth.issuer.serviceAccount"
	case s.CSR != nil:
		return clusterOf{csr: true, ttl: s.CSR.TTL}, "spec.services.auth.issuer.csr"
	}
	return clusterOf{}, ""
}

func openAuth(g *Gateway, cfg *config.Resolved, in *forward.Listener) (*authService, error) {
	s := &authService{g: g, listener: in, done: make(chan struct{})}
	s.issuer.Store(new(auth.Issuer))
	issuer, err := openIssuer(g, cfg)
	if err != nil {
		return nil, err
	}
	s.server, err = auth.NewServer(auth.ServerOptions{
		Name: cfg.Name, Software: "postern " + g.opts.Version, Directory: s, Redeemer: g.enrolment,
		Issuer:    func() auth.Issuer { return *s.issuer.Load() },
		APIServer: s.apiServer, Offers: s.offers, Ports: s.ports, OnPath: g.paths.Receive,
		OnRotation: g.enrolment.OnRotation, OnReport: g.reports.receive, Report: g.reports.forHello,
		HeardBoot: g.paths.HeardBoot, Audit: g.audit, Logger: g.log,
	})
	if err != nil {
		return nil, fmt.Errorf("start the auth service: %w", err)
	}
	if s.tokens, err = auth.NewDirectTokens(g.key); err != nil {
		return nil, fmt.Errorf("start the auth service: %w", err)
	}
	outside, err := s.prepareOutside(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	s.useIssuer(issuer, cfg)
	s.useOutside(outside)
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		if err := s.server.Serve(ctx, s.listener); err != nil {
			g.log.Error("the auth service ended", "error", err)
		}
	}()
	return s, nil
}

// openIssuer makes the issuer that the configuration names; nil when it names none. It does
// nothing until it is put to use.
func openIssuer(g *Gateway, cfg *config.Resolved) (auth.Issuer, error) {
	if of, field := clusterIssuerOf(cfg); field != "" {
		return openClusterIssuer(g, cfg, of, field)
	}
	ca := cfg.Services.LocalCA
	if ca == nil {
		return nil, nil
	}
	var cluster []byte
	if a := cfg.Services.APIServer; a != nil {
		cluster = a.CAData
	}
	issuer, err := auth.LoadLocalCA(auth.LocalCAOptions{
		CertFile: ca.CertFile, KeyFile: ca.KeyFile, TTL: ca.TTL, ClusterCA: cluster, Ledger: g.store, Logger: g.log,
	})
	if err != nil {
		return nil, cfg.Blame("spec.services.auth.issuer.localCA", err)
	}
	return issuer, nil
}

// openClusterIssuer makes an issuer in the cluster, or gives the present one when it is as
// the configuration wants it.
func openClusterIssuer(g *Gateway, cfg *config.Resolved, of clusterOf, at string) (auth.Issuer, error) {
	if g.auth != nil && g.auth.cluster != nil && g.auth.clusterOf == of {
		return g.auth.cluster, nil
	}
	if g.opts.NewClusterIssuer == nil {
		return nil, cfg.Blame(at, errNoClusterIssuer)
	}
	issuer, err := g.opts.NewClusterIssuer(ClusterIssuerOptions{
		Gateway: cfg.Name, Namespace: of.namespace, CSR: of.csr, TTL: of.ttl, Ledger: g.store,
		Report: func(list []check.OwnProblem) { g.SetProblems("issuer", list) }, Logger: g.log,
	})
	if err != nil {
		return nil, cfg.Blame(at, err)
	}
	return issuer, nil
}

var errNoClusterIssuer = errors.New("this gateway runs where there is no cluster to issue in (use issuer.localCA)")

// useIssuer puts an issuer to use, and ends the one before. It is called with changing
// held, or before anybody else could.
func (s *authService) useIssuer(i auth.Issuer, cfg *config.Resolved) {
	next, _ := i.(ClusterIssuer)
	if next == nil || next != s.cluster {
		if s.stopCluster != nil {
			s.stopCluster()
		}
		s.cluster, s.stopCluster = next, nil
		s.g.SetProblems("issuer", nil)
	}
	if next != nil && s.stopCluster == nil {
		s.clusterOf, _ = clusterIssuerOf(cfg)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); next.Run(ctx) }()
		s.stopCluster = func() { cancel(); <-done }
	}
	s.issuer.Store(&i)
}

// setIssuer is useIssuer for a gateway that has peers.
func (s *authService) setIssuer(i auth.Issuer) {
	s.useIssuer(i, s.g.peers.Config())
	s.setPeers(s.g.peers.Load())
}

// follow is for [Registry.Subscribe].
func (s *authService) follow(old, next *roster.Roster) {
	s.setPeers(next)
	for _, m := range old.Without(next) {
		s.revoke(m, m.Succeeded(next))
	}
}

// setPeers tells an issuer in the cluster who may have an identity.
func (s *authService) setPeers(r *roster.Roster) {
	if s.cluster == nil {
		return
	}
	var subjects []auth.Subject
	for _, m := range r.Members() {
		if !m.Stock && !m.Pending && slices.Contains(m.Allow, api.ServiceAuth) && slices.Contains(m.Allow, api.ServiceAPIServer) {
			subjects = append(subjects, m.Subject())
		}
	}
	s.cluster.SetPeers(subjects)
}

func (s *authService) close() {
	if s.outside != nil {
		s.outside.stop()
	}
	s.cancel()
	<-s.done
	if s.stopCluster != nil {
		s.stopCluster()
	}
}

// decisions counts answers by result.
func (s *authService) decisions() map[string]uint64 { return s.server.Decisions() }

// revoke notes that a key gets no more identities, and says until when a removed peer can
// use those that it has; succeeded is a peer that has another key now.
func (s *authService) revoke(m *roster.Member, succeeded bool) {
	issuer := *s.issuer.Load()
	if issuer == nil || m.Stock {
		return
	}
	r := issuer.Revoke(m.Subject())
	if succeeded { // it is a peer still, and what it has is its own
		return
	}
	if r.Recalled {
		s.g.audit.Record(context.Background(), audit.Revoke, audit.Peer(m.Name), audit.PublicKey(m.Key),
			audit.Reason("its account is deleted, which ends its tokens"))
		return
	}
	if r.Outstanding == 0 {
		return
	}
	s.g.audit.Record(context.Background(), audit.Revoke, audit.Peer(m.Name), audit.PublicKey(m.Key),
		slog.Int(audit.KeyCount, r.Outstanding), audit.NotAfter(r.NotAfter))
	s.g.log.Warn("a removed peer holds certificates that cannot be called back; it reaches the API server no more through this gateway, but they are valid elsewhere until they expire",
		"peer", m.Name, "certificates", r.Outstanding, "notAfter", r.NotAfter)
}

// user is who a peer is at this cluster's API server; empty when it gets no identity.
func (s *authService) user(m *roster.Member) string {
	issuer := *s.issuer.Load()
	if issuer == nil || m == nil || m.Stock {
		return ""
	}
	return issuer.User(m.Subject())
}

// userFor is who a peer to come will be, of which an operator has chosen the name.
func (s *authService) userFor(name string) string {
	return s.user(&roster.Member{Name: name, Identity: name})
}

// userOf is user for the peer of a name.
func (s *authService) userOf(name string) string { return s.user(s.g.peers.Load().ByName(name)) }

// Caller says whom an overlay address belongs to.
func (s *authService) Caller(a netip.Addr) (auth.Caller, bool) { return s.g.peers.Load().Caller(a) }

// apiServer is what those who may reach the API server are told of it.
func (s *authService) apiServer() *auth.APIServer {
	a := s.g.peers.Config().Services.APIServer
	if a == nil {
		return nil
	}
	return &auth.APIServer{ServerName: a.ServerName, CAData: string(a.CAData)}
}

// offers are a caller's grants as far as the services exist here.
func (s *authService) offers(c auth.Caller) []string {
	cfg := s.g.peers.Config()
	out := []string{}
	for _, service := range c.Grants {
		exists := service == api.ServiceAuth ||
			service == api.ServiceAPIServer && cfg.Services.APIServer != nil ||
			slices.ContainsFunc(cfg.Services.Named, func(n config.NamedService) bool { return n.Name == service })
		if exists {
			out = append(out, service)
		}
	}
	return out
}

// ports are the overlay ports of the named services.
func (s *authService) ports() map[string]uint16 {
	out := map[string]uint16{}
	for _, n := range s.g.peers.Config().Services.Named {
		out[n.Name] = n.Port
	}
	return out
}
