package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/tunnel"
)

// runGateway runs a gateway with its admin socket until ctx ends, and drains it.
func runGateway(ctx context.Context, cfg *config.Resolved, load func() (*config.Resolved, error), log *slog.Logger) error {
	hangups := make(chan os.Signal, 1) // Taken first: unhandled, a SIGHUP would kill.
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	g, err := gateway.Start(ctx, gateway.Options{
		Config: cfg, Version: buildVersion().Version, ReadConfig: load, Root: os.DirFS("/"),
		NewClusterIssuer: newClusterIssuer, Logger: log,
	})
	if errors.Is(err, tunnel.ErrPortInUse) {
		return cfg.ProblemAt("spec.listen.port", fmt.Sprintf("UDP port %d is in use (stop what has it, or choose another; 0 takes a free one)", cfg.ListenPort))
	}
	if err != nil {
		return err
	}
	server, err := admin.Listen(admin.ServerOptions{Socket: cfg.AdminSocket, Backend: g, Logger: log})
	if err == nil {
		reloadOn(ctx, hangups, g)
		err = server.Close()
	} else {
		err = cfg.ProblemAt("spec.admin.socket", err.Error())
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	return errors.Join(err, g.Close(drain))
}

// reloadOn reads the configuration again at every hang-up until ctx ends. The gateway
// itself logs what came of it.
func reloadOn(ctx context.Context, hangups <-chan os.Signal, g *gateway.Gateway) {
	for {
		select {
		case <-hangups:
			_ = g.Reload(ctx)
		case <-ctx.Done():
			return
		}
	}
}
