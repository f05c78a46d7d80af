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

// runGateway runs a gateway with its admin socket until ctx ends, and drains it. One that
// wants to be started anew is.
func runGateway(ctx context.Context, cfg *config.Resolved, load func() (*config.Resolved, error), log *slog.Logger) error {
	hangups := make(chan os.Signal, 1) // Taken first: unhandled, a SIGHUP would kill.
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		again, err := runOnce(ctx, cfg, load, hangups, log)
		if err != nil || !again {
			return err
		}
		if cfg, err = load(); err != nil {
			return err
		}
	}
}

// runOnce runs a gateway until ctx ends or it wants to be started anew.
func runOnce(ctx context.Context, cfg *config.Resolved, load func() (*config.Resolved, error), hangups <-chan os.Signal, log *slog.Logger) (again bool, err error) {
	g, err := gateway.Start(ctx, gateway.Options{
		Config: cfg, Version: buildVersion().Version, ReadConfig: load, Root: os.DirFS("/"),
		NewClusterIssuer: newClusterIssuer, Logger: log,
	})
	if errors.Is(err, tunnel.ErrPortInUse) {
		return false, cfg.ProblemAt("spec.listen.port", fmt.Sprintf("UDP port %d is in use (stop what has it, or choose another; 0 takes a free one)", cfg.ListenPort))
	}
	if err != nil {
		return false, err
	}
	server, err := admin.Listen(admin.ServerOptions{Socket: cfg.AdminSocket, Backend: g, Logger: log})
	if err == nil {
		again = reloadOn(ctx, hangups, g)
		err = server.Close() // lets the command that wanted it have its answer
	} else {
		err = cfg.ProblemAt("spec.admin.socket", err.Error())
	}
	wait := drainTime
	if again { // connections end with the key, so nothing is gained by waiting
		wait = 0
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	return again, errors.Join(err, g.Close(drain))
}

// reloadOn reads the configuration again at every hang-up until ctx ends, or the gateway
// wants to be started anew. The gateway itself logs what came of it.
func reloadOn(ctx context.Context, hangups <-chan os.Signal, g *gateway.Gateway) (again bool) {
	for {
		select {
		case <-hangups:
			_ = g.Reload(ctx)
		case <-g.Restart():
			return true
		case <-ctx.Done():
			return false
		}
	}
}
