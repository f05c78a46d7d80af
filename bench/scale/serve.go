package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/tunnel"
)

// profileSocket is in the folder of the hub's configuration.
const profileSocket = "profile.sock"

// Serve runs a gateway that can be profiled, which the binary cannot: it runs the gateway of a
// configuration file until ctx ends, and serves net/http/pprof on a Unix socket in the same
// folder.
func Serve(ctx context.Context, file string) (err error) {
	_ = tunnel.UseSmallPages() // as the binary does
	cfg, err := config.Load(file, config.Overrides{})
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	g, err := gateway.Start(ctx, gateway.Options{Config: cfg, Root: os.DirFS("/"), Logger: log})
	if err != nil {
		return err
	}
	defer func() {
		expired, cancel := context.WithCancel(context.Background())
		cancel()
		err = errors.Join(err, g.Close(expired))
	}()
	server, err := admin.Listen(admin.ServerOptions{Socket: cfg.AdminSocket, Backend: g, Logger: log})
	if err != nil {
		return err
	}
	defer server.Close() //nolint:errcheck // what is open is ended
	profiles, err := serveProfiles(ctx, filepath.Join(filepath.Dir(file), profileSocket))
	if err != nil {
		return err
	}
	defer profiles.Close() //nolint:errcheck // what is open is ended
	<-ctx.Done()
	return nil
}

func serveProfiles(ctx context.Context, socket string) (*http.Server, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("offer profiles: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("offer profiles: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux}       //nolint:gosec // a socket of our own
	go func() { _ = s.Serve(listener) }() // it ends with Close
	return s, nil
}
