// Package apiserver is a stand-in for a Kubernetes API server where the real one is
// too heavy (the lab, unit tests): real TLS, real client certificates, and the few
// paths that a reachability check and a demonstration need:
//
//	GET /livez /readyz /version     for everybody, as Kubernetes allows by default
//	GET /api/v1/namespaces          for users that the authority vouches for; else 401
//
// It is no fake of the API's semantics; tests of those run against kube-apiserver. What
// goes wrong with real ones it does when told to: it is down, slow, answers with an error,
// or shows another certificate.
package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/testenv/pki"
)

// ServerName is the name in the certificate, the one in-cluster clients use.
const ServerName = "kubernetes.default.svc"

// Server is a running endpoint. Its methods are safe for concurrent use.
type Server struct {
	handler http.Handler

	mu      sync.Mutex
	addr    string
	users   map[string]int
	cert    tls.Certificate
	clients *x509.CertPool
	status  int           // of every answer; 0 = what is right
	delay   time.Duration // of every answer
	ahead   time.Duration // of the clock that answers show
	run     *running      // nil while it is down
}

// running is a server that listens.
type running struct {
	http *http.Server
	done chan struct{}
}

// Start listens on a free loopback port. serving signs the server's certificate,
// clients are the authorities whose client certificates are believed; namespaces is
// what a list returns. The context bounds only the start.
func Start(ctx context.Context, serving *pki.CA, clients *x509.CertPool, namespaces ...string) (*Server, error) {
	pair, err := serving.Server(ServerName, "localhost", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	cert, err := pair.TLS()
	if err != nil {
		return nil, fmt.Errorf("load the server certificate: %w", err)
	}
	s := &Server{addr: "127.0.0.1:0", clients: clients, users: map[string]int{}, cert: cert}
	s.handler = s.moody(s.routes(namespaces))
	if err := s.Restart(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Addr is the host:port it listens on; it stays the same over Restart.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Requests is how many authenticated requests the user (a certificate's common name)
// has made.
func (s *Server) Requests(user string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[user]
}

func (s *Server) routes(namespaces []string) http.Handler {
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }
	mux.HandleFunc("GET /livez", ok)
	mux.HandleFunc("GET /readyz", ok)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.0-lab"})
	})
	mux.HandleFunc("GET /api/v1/namespaces", func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			reply(w, http.StatusUnauthorized, map[string]any{
				"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401,
			})
			return
		}
		s.mu.Lock()
		s.users[r.TLS.PeerCertificates[0].Subject.CommonName]++
		s.mu.Unlock()
		reply(w, http.StatusOK, list(namespaces))
	})
	return mux
}

func list(namespaces []string) map[string]any {
	items := make([]map[string]any, 0, len(namespaces))
	for _, n := range namespaces {
		items = append(items, map[string]any{
			"metadata": map[string]any{"name": n},
			"status":   map[string]any{"phase": "Active"},
		})
	}
	return map[string]any{"kind": "NamespaceList", "apiVersion": "v1", "metadata": map[string]any{}, "items": items}
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}
