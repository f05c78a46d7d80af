// Package apiserver is a fake Kubernetes API server for the lab and for unit tests, where a real
// one is too heavy. It has real TLS, real client certificates, and the few paths that a
// reachability check and a demonstration need:
//
//	GET /livez /readyz /version     for everyone, as Kubernetes allows by default
//	GET /api/v1/namespaces          for users that the authority vouches for; else 401
//
// It does not implement the API's semantics; tests of these use kube-apiserver. It can simulate
// failures of real servers: it can be down, be slow, return errors, or present another
// certificate.
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

// ServerName is the name in the certificate, which in-cluster clients use.
const ServerName = "kubernetes.default.svc"

// Server is a running endpoint. Its methods are safe for concurrent use.
type Server struct {
	handler http.Handler

	mu      sync.Mutex
	addr    string
	users   map[string]int
	cert    tls.Certificate
	clients *x509.CertPool
	status  int           // of every response; 0 means the correct one
	delay   time.Duration // before every response
	ahead   time.Duration // added to the clock shown in responses
	run     *running      // nil while it is down
}

// running is a server that is listening.
type running struct {
	http *http.Server
	done chan struct{}
}

// Start listens on a free loopback port. serving signs the server's certificate, clients are the
// trusted authorities of client certificates, and namespaces is the result of a list request. ctx
// only bounds the start.
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

// Addr returns the host:port that it listens on, which Restart does not change.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Requests returns the number of authenticated requests by a user (a certificate's common name).
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
