// Package issuer serves auth to peers, inside the tunnel and outside. It creates the issuer of
// identities that the configuration names, identifies callers, and marks what a peer is offered and
// what its identity depends on.
package issuer

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
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Options configure a Service.
type Options struct {
	Key   peer.PrivateKey // this gateway's
	Store *state.Store
	Peers *roster.Registry
	// Listener has the connections inside the tunnel.
	Listener *forward.Listener
	// Server has the gateway's name, and the handlers of everything but identities.
	Server auth.ServerOptions
	// NewClusterIssuer creates an issuer in the gateway's cluster; nil outside a cluster.
	NewClusterIssuer func(ClusterOptions) (Cluster, error)
	// SetProblems sets what keeps an issuer from issuing.
	SetProblems func(source string, list []check.OwnProblem)
	Audit       *audit.Log
	Logger      *slog.Logger
}

// Service is the auth server, inside the tunnel and outside, with the issuer of identities. It
// identifies callers by the roster.
type Service struct {
	o      Options
	log    *slog.Logger
	peers  *roster.Registry
	server *auth.Server
	tokens *auth.DirectTokens
	issuer atomic.Pointer[auth.Issuer]
	cancel context.CancelFunc
	done   chan struct{}
	caMark lastMark // of the API server's authorities

	// Guarded by the registry's lock: the issuer in the cluster while it runs, nil if the issuer is
	// another, and its options.
	outside     *outsideAuth // nil if auth is only served inside the tunnel
	cluster     Cluster
	clusterOf   clusterOf
	stopCluster func()
}

// Cluster issues identities in the gateway's own cluster, where they are removed as well.
type Cluster interface {
	auth.Issuer
	// SetPeers sets who may have an identity. It does not wait.
	SetPeers(peers []auth.Subject)
	// Run removes all other identities until ctx ends. Call it once.
	Run(ctx context.Context)
}

// ClusterOptions are the options of serviceAccount or csr in spec.services.auth.issuer, and the
// gateway's.
type ClusterOptions struct {
	Gateway string
	// Namespace is the accounts'. CSR asks for certificates instead of tokens.
	Namespace string
	CSR       bool
	TTL       time.Duration
	// Ledger records issued certificates.
	Ledger auth.Ledger
	// Report is called with what keeps the issuer from issuing; it must not block.
	Report func([]check.OwnProblem)
	Logger *slog.Logger
}

// clusterOf identifies an issuer in the cluster.
type clusterOf struct {
	namespace string
	csr       bool
	ttl       time.Duration
}

// clusterIssuerOf returns the issuer in the cluster that a configuration asks for, if any, and the
// field that does.
func clusterIssuerOf(cfg *config.Resolved) (of clusterOf, field string) {
	switch s := cfg.Services; {
	case s.ServiceAccount != nil:
		return clusterOf{namespace: s.ServiceAccount.Namespace, ttl: s.ServiceAccount.TTL}, "spec.services.auth.issuer.serviceAccount"
	case s.CSR != nil:
		return clusterOf{csr: true, ttl: s.CSR.TTL}, "spec.services.auth.issuer.csr"
	}
	return clusterOf{}, ""
}

// Open starts serving. It admits nobody before there are peers.
func Open(o Options) (*Service, error) {
	cfg := o.Peers.Config()
	s := &Service{o: o, log: o.Logger, peers: o.Peers, done: make(chan struct{})}
	s.issuer.Store(new(auth.Issuer))
	server := o.Server
	server.Directory, server.Issuer = s, func() auth.Issuer { return *s.issuer.Load() }
	server.APIServer, server.Offers, server.Ports = s.apiServer, s.Offers, s.ports
	server.Audit, server.Logger = o.Audit, o.Logger
	var err error
	if s.server, err = auth.NewServer(server); err != nil {
		return nil, fmt.Errorf("start the auth service: %w", err)
	}
	if s.tokens, err = auth.NewDirectTokens(o.Key); err != nil {
		return nil, fmt.Errorf("start the auth service: %w", err)
	}
	issuer, outside, err := s.prepare(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	s.useIssuer(issuer, cfg) // the first roster tells it who may have an identity
	s.useOutside(outside)
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		if err := s.server.Serve(ctx, o.Listener); err != nil {
			s.log.Error("auth server failed", "error", err)
		}
	}()
	return s, nil
}

// Prepare creates everything that can fail for another configuration. Then exactly one of the two
// must be called: commit puts it into effect, discard does not. The caller holds the registry's
// lock.
func (s *Service) Prepare(ctx context.Context, next *config.Resolved) (commit, discard func(), err error) {
	issuer, outside, err := s.prepare(ctx, next)
	if err != nil {
		return nil, nil, err
	}
	commit = func() {
		s.useIssuer(issuer, next)
		s.setPeers(s.peers.Load())
		s.useOutside(outside)
	}
	return commit, func() { s.discard(outside) }, nil
}

func (s *Service) prepare(ctx context.Context, cfg *config.Resolved) (issuer auth.Issuer, outside *outsideAuth, err error) {
	if issuer, err = s.openIssuer(cfg); err != nil {
		return nil, nil, err
	}
	outside, err = s.prepareOutside(ctx, cfg)
	return issuer, outside, err
}

// openIssuer creates the issuer that the configuration names; nil if it names none. It does nothing
// until it is used.
func (s *Service) openIssuer(cfg *config.Resolved) (auth.Issuer, error) {
	if of, field := clusterIssuerOf(cfg); field != "" {
		return s.openClusterIssuer(cfg, of, field)
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
		CertFile: ca.CertFile, KeyFile: ca.KeyFile, TTL: ca.TTL, ClusterCA: cluster, Ledger: s.o.Store, Logger: s.log,
	})
	if err != nil {
		return nil, cfg.Blame("spec.services.auth.issuer.localCA", err)
	}
	return issuer, nil
}

// openClusterIssuer creates an issuer in the cluster, or returns the current one if it matches the
// configuration.
func (s *Service) openClusterIssuer(cfg *config.Resolved, of clusterOf, at string) (auth.Issuer, error) {
	if s.cluster != nil && s.clusterOf == of {
		return s.cluster, nil
	}
	if s.o.NewClusterIssuer == nil {
		return nil, cfg.Blame(at, errNoClusterIssuer)
	}
	issuer, err := s.o.NewClusterIssuer(ClusterOptions{
		Gateway: cfg.Name, Namespace: of.namespace, CSR: of.csr, TTL: of.ttl, Ledger: s.o.Store,
		Report: func(list []check.OwnProblem) { s.o.SetProblems("issuer", list) }, Logger: s.log,
	})
	if err != nil {
		return nil, cfg.Blame(at, err)
	}
	return issuer, nil
}

var errNoClusterIssuer = errors.New("this gateway runs where there is no cluster to issue in (use issuer.localCA)")

// useIssuer switches to an issuer, and stops the previous one. The caller holds the registry's
// lock.
func (s *Service) useIssuer(i auth.Issuer, cfg *config.Resolved) {
	next, _ := i.(Cluster)
	if next == nil || next != s.cluster {
		if s.stopCluster != nil {
			s.stopCluster()
		}
		s.cluster, s.stopCluster = next, nil
		s.o.SetProblems("issuer", nil)
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

// Follow is for [roster.Registry.Subscribe].
func (s *Service) Follow(old, next *roster.Roster) {
	s.setPeers(next)
	for _, m := range old.Without(next) {
		s.revoke(m, m.Succeeded(next))
	}
}

// setPeers tells an issuer in the cluster who may have an identity.
func (s *Service) setPeers(r *roster.Roster) {
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

// Close closes the server, inside and outside the tunnel, and the issuer.
func (s *Service) Close() {
	if s.outside != nil {
		s.outside.stop()
	}
	s.cancel()
	<-s.done
	if s.stopCluster != nil {
		s.stopCluster()
	}
}

// Decisions counts answers by result.
func (s *Service) Decisions() map[string]uint64 { return s.server.Decisions() }

// revoke notes that a key gets no more identities, and reports until when a removed peer can use
// its existing ones; succeeded is a peer that has another key now.
func (s *Service) revoke(m *roster.Member, succeeded bool) {
	issuer := *s.issuer.Load()
	if issuer == nil || m.Stock {
		return
	}
	r := issuer.Revoke(m.Subject())
	if succeeded { // it is still a peer, and keeps what it has
		return
	}
	if r.Recalled {
		s.o.Audit.Record(context.Background(), audit.Revoke, audit.Peer(m.Name), audit.PublicKey(m.Key),
			audit.Reason("its account is deleted, which ends its tokens"))
		return
	}
	if r.Outstanding == 0 {
		return
	}
	s.o.Audit.Record(context.Background(), audit.Revoke, audit.Peer(m.Name), audit.PublicKey(m.Key),
		slog.Int(audit.KeyCount, r.Outstanding), audit.NotAfter(r.NotAfter))
	s.log.Warn("removed peer holds certificates that cannot be revoked; this gateway no longer forwards it, but they stay valid elsewhere until they expire",
		"peer", m.Name, "certificates", r.Outstanding, "notAfter", r.NotAfter)
}

// User returns a peer's user name at this cluster's API server; empty if it gets no identity.
func (s *Service) User(m *roster.Member) string {
	issuer := *s.issuer.Load()
	if issuer == nil || m == nil || m.Stock {
		return ""
	}
	return issuer.User(m.Subject())
}

// UserFor returns the user name of a future peer whose name an operator has chosen.
func (s *Service) UserFor(name string) string {
	return s.User(&roster.Member{Name: name, Identity: name})
}

// UserOf is User for the peer with the name.
func (s *Service) UserOf(name string) string { return s.User(s.peers.Load().ByName(name)) }

// Caller returns the owner of an overlay address.
func (s *Service) Caller(a netip.Addr) (auth.Caller, bool) { return s.peers.Load().Caller(a) }

// apiServer returns what those who may reach the API server are told.
func (s *Service) apiServer() *auth.APIServer {
	a := s.peers.Config().Services.APIServer
	if a == nil {
		return nil
	}
	return &auth.APIServer{ServerName: a.ServerName, CAData: string(a.CAData)}
}

// Offers returns a caller's grants, limited to services that exist here.
func (s *Service) Offers(c auth.Caller) []string {
	cfg := s.peers.Config()
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

// ports returns the overlay ports of the named services.
func (s *Service) ports() map[string]api.Ports {
	out := map[string]api.Ports{}
	for _, n := range s.peers.Config().Services.Named {
		out[n.Name] = n.Ports
	}
	return out
}
