package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Answer sets the status and delay of every response; status 0 means the correct one.
func (s *Server) Answer(status int, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.delay = status, delay
}

// Ahead sets how far the clock shown in responses is ahead.
func (s *Server) Ahead(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = by
}

// Present sets the certificate for new connections.
func (s *Server) Present(cert tls.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cert = cert
}

// Trust sets the authorities of client certificates for new connections.
func (s *Server) Trust(clients *x509.CertPool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = clients
}

// Restart listens at the same address as before. ctx only bounds the start.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		return errors.New("the API server runs already")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	s.addr = l.Addr().String()
	r := &running{done: make(chan struct{}), http: &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{GetConfigForClient: s.config, MinVersion: tls.VersionTLS12},
		ErrorLog:          log.New(io.Discard, "", 0),
	}}
	s.run = r
	go func() {
		defer close(r.done)
		_ = r.http.ServeTLS(l, "", "")
	}()
	return nil
}

// Close closes the server and all its connections. Restart starts it again.
func (s *Server) Close() error {
	s.mu.Lock()
	r := s.run
	s.run = nil
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	err := r.http.Close()
	<-r.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// config returns the TLS configuration of the next connection.
func (s *Server) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &tls.Config{
		Certificates: []tls.Certificate{s.cert},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    s.clients,
		MinVersion:   tls.VersionTLS12,
		// Resumed sessions would use the previous certificate.
		SessionTicketsDisabled: true,
	}, nil
}

// moody applies the delay and status that were set, or calls next.
func (s *Server) moody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		status, delay, ahead := s.status, s.delay, s.ahead
		s.mu.Unlock()
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		late := time.NewTimer(delay)
		defer late.Stop()
		select {
		case <-late.C:
		case <-r.Context().Done():
			return
		}
		if status == 0 {
			next.ServeHTTP(w, r)
			return
		}
		reply(w, status, map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": http.StatusText(status), "code": status,
		})
	})
}
