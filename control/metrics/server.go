package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/postern-dev/postern/control/connlimit"
)

// Limits of the HTTP server. Scrapers and kubelets send small, frequent requests, which never
// take this long.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute // scrapers return every 15 to 60 s
	maxHeader      = 8 << 10
	maxScrapes     = 4 // concurrent
	// Connections of one address, and of all: pods may connect where no NetworkPolicy is enforced.
	sourceConns, totalConns = 32, 256
)

// ServerOptions configure a Server.
type ServerOptions struct {
	// Address is host:port to listen on.
	Address  string
	Gatherer prometheus.Gatherer
	// Live returns an error if the process should be restarted; usually a Heartbeat's Check.
	Live func() error
	// Ready returns an error if the gateway cannot take traffic yet. It does not depend on peers:
	// otherwise a gateway whose peers are all away would be taken out of service for something
	// that it cannot fix.
	Ready  func() error
	Logger *slog.Logger
}

// Server serves /metrics, /livez and /readyz.
type Server struct {
	http *http.Server
	addr string
	done chan struct{}
}

// Serve listens and serves until Shutdown. If it cannot listen, the error contains the address
// and advice. ctx bounds the start.
func Serve(ctx context.Context, o ServerOptions) (*Server, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics on spec.http.address %s: %w%s", o.Address, cause(err), hint(err))
	}
	logger := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Server{addr: ln.Addr().String(), done: make(chan struct{})}
	s.http = &http.Server{
		Handler:           Handler(o),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.done)
		bounded := connlimit.Listen(ln, connlimit.Options[netip.Addr]{Of: connlimit.Address, Each: sourceConns, Total: totalConns})
		if err := s.http.Serve(bounded); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("metrics server failed", "address", s.addr, "error", err)
		}
	}()
	return s, nil
}

// Addr returns the host:port that it listens on.
func (s *Server) Addr() string { return s.addr }

// Shutdown waits for requests until ctx ends, then closes their connections.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return err
}

// Handler serves the three paths, for GET and HEAD only.
func Handler(o ServerOptions) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
		ErrorLog:            log.New(logWriter{cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}, "", 0),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             requestTimeout - time.Second,
	}))
	mux.Handle("GET /livez", probe(o.Live))
	mux.Handle("GET /readyz", probe(o.Ready))
	return mux
}

// probe answers 200 "ok", or 503 and the reason.
func probe(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if check != nil {
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, err.Error()+"\n")
				return
			}
		}
		_, _ = io.WriteString(w, "ok\n")
	})
}

// logWriter logs promhttp's messages as warnings.
type logWriter struct{ l *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.l.Warn("incomplete scrape", "error", string(b))
	return len(b), nil
}

// cause removes what package net repeats (operation and address).
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// hint returns advice about an address that cannot be listened on.
func hint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return " (another process has the port, perhaps another gateway: choose another)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return " (no interface has this address)"
	case errors.Is(err, syscall.EACCES):
		return " (ports below 1024 need a privilege: choose another)"
	}
	return ""
}
