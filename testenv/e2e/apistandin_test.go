//go:build linux && e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/pki"
)

// The API server of a side: on its loopback, with a certificate for apiName by its own authority.
const (
	apiUpstream = "127.0.0.1:6443"
	apiName     = "kubernetes.default.svc"
)

// apiStandIn answers like an API server, as far as a check needs it, and can be made to fail.
type apiStandIn struct {
	ca *pki.CA

	mu    sync.Mutex
	cert  tls.Certificate
	delay time.Duration
	// clients are the authorities of accepted identities; nil accepts everyone.
	clients *x509.CertPool
	// bound are the users that may do anything; nil means everyone.
	bound  []string
	server *http.Server
	w      *ward
}

func newAPIStandIn(t *testing.T, w *ward) *apiStandIn {
	t.Helper()
	ca, err := pki.NewCA("kubernetes-of-" + w.name)
	if err != nil {
		t.Fatal(err)
	}
	s := &apiStandIn{ca: ca, w: w}
	s.show(ca, apiName)
	s.start()
	return s
}

// show makes the server present a certificate for a name, signed by an authority.
func (s *apiStandIn) show(ca *pki.CA, name string) {
	s.w.t.Helper()
	pair, err := ca.Server(name)
	if err != nil {
		s.w.t.Fatal(err)
	}
	s.present(pair)
}

func (s *apiStandIn) present(pair pki.Pair) {
	s.w.t.Helper()
	cert, err := pair.TLS()
	if err != nil {
		s.w.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cert = cert
}

// lag sets how long the server takes to answer.
func (s *apiStandIn) lag(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// trusts makes the server refuse clients without a valid identity of one of the authorities
// (PEM), like --client-ca-file.
func (s *apiStandIn) trusts(authorities []byte) {
	s.w.t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		s.w.t.Fatal("no certificate for --client-ca-file")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = pool
}

// binds makes the server forbid everything to all but these users.
func (s *apiStandIn) binds(users ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound = append([]string{}, users...)
}

// judge returns the HTTP status for a client's certificates.
func (s *apiStandIn) judge(shown []*x509.Certificate) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients != nil {
		if len(shown) == 0 {
			return http.StatusUnauthorized
		}
		if _, err := shown[0].Verify(x509.VerifyOptions{Roots: s.clients, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			return http.StatusUnauthorized
		}
	}
	if s.bound != nil && (len(shown) == 0 || !slices.Contains(s.bound, shown[0].Subject.CommonName)) {
		return http.StatusForbidden
	}
	return http.StatusOK
}

func (s *apiStandIn) start() {
	s.w.t.Helper()
	l, err := s.w.host.Listen(s.w.t.Context(), netip.MustParseAddrPort(apiUpstream))
	if err != nil {
		s.w.t.Fatal(err)
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(s.answer),
		ReadHeaderTimeout: patience,
		ErrorLog:          log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return &tls.Config{
					Certificates: []tls.Certificate{s.cert}, MinVersion: tls.VersionTLS12,
					ClientAuth: tls.RequestClientCert,
				}, nil
			},
		},
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeTLS(l, "", "") }()
	s.server = server
	s.w.t.Cleanup(func() { server.Close(); <-done })
}

func (s *apiStandIn) stop() { s.server.Close() }

func (s *apiStandIn) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	delay := s.delay
	s.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
		return
	}
	status := s.judge(r.TLS.PeerCertificates)
	if status == http.StatusOK && r.URL.Path == "/version" {
		_, _ = io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`)
		return
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, strings.ToLower(http.StatusText(status)))
}
