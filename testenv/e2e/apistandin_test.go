//go:build linux && e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/pki"
)

// The API server of a side: on its loopback, with a certificate for apiName by an
// authority of its own.
const (
	apiUpstream = "127.0.0.1:6443"
	apiName     = "kubernetes.default.svc"
)

// apiStandIn answers as an API server does in what matters to a check, and fails as it is
// told to.
type apiStandIn struct {
	ca, clients *pki.CA

	mu     sync.Mutex
	cert   tls.Certificate
	status int
	delay  time.Duration
	// strict: only identities that are valid are let in.
	strict bool
	server *http.Server
	w      *ward
}

func newAPIStandIn(t *testing.T, w *ward) *apiStandIn {
	t.Helper()
	ca, err := pki.NewCA("kubernetes of " + w.name)
	if err != nil {
		t.Fatal(err)
	}
	s := &apiStandIn{ca: ca, status: http.StatusOK, w: w}
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

// behave changes what the server answers, and after how long.
func (s *apiStandIn) behave(status int, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.delay = status, delay
}

// wantsIdentity makes the server refuse whoever has no valid identity.
func (s *apiStandIn) wantsIdentity() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strict = true
}

// trust names who issues identities.
func (s *apiStandIn) trust(clients *pki.CA) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = clients
}

// knows reports whether a client shows an identity that the issuer made and that is valid.
func knows(clients *pki.CA, r *http.Request) bool {
	if len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	_, err := r.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: clients.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
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
	status, delay, strict, clients := s.status, s.delay, s.strict, s.clients
	s.mu.Unlock()
	if strict && !knows(clients, r) {
		status = http.StatusUnauthorized
	}
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
		return
	}
	if status == http.StatusOK && r.URL.Path == "/version" {
		_, _ = io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`)
		return
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, strings.ToLower(http.StatusText(status)))
}
