package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/kube/lease"
	"github.com/postern-dev/postern/tunnel"
)

// runGateway runs a gateway with its admin socket until ctx ends, and drains it. It restarts the
// gateway on request.
func runGateway(ctx context.Context, cfg *config.Resolved, load func() (*config.Resolved, error), log *slog.Logger) error {
	hangups := make(chan os.Signal, 1) // first: an unhandled SIGHUP would kill the process
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if cfg.Kubernetes != nil {
		return runInCluster(ctx, cfg, load, hangups, log)
	}
	return runAgain(ctx, cfg, load, func(cfg *config.Resolved) (bool, error) {
		return runOnce(ctx, gateway.Options{Config: cfg, ReadConfig: load, Logger: log}, hangups, nil)
	})
}

// runAgain runs a gateway repeatedly as long as it requests a restart.
func runAgain(ctx context.Context, cfg *config.Resolved, load func() (*config.Resolved, error), once func(*config.Resolved) (again bool, err error)) error {
	for {
		again, err := once(cfg)
		if err != nil || !again || ctx.Err() != nil {
			return err
		}
		if cfg, err = load(); err != nil {
			return err
		}
	}
}

// answerTime bounds the wait for answers to commands when the gateway restarts.
const answerTime = 2 * time.Second

// handOverTime is the same as drainTime in a cluster, where another replica may wait for the role:
// a watch never ends by itself, and new connections are only served afterwards.
const handOverTime = 2 * time.Second

// attachFunc attaches a gateway to what runs beside it, until detach is called.
type attachFunc func(*gateway.Gateway) (detach func(), err error)

// runOnce runs a gateway until ctx ends or it requests a restart. attach may be nil.
func runOnce(ctx context.Context, o gateway.Options, hangups <-chan os.Signal, attach attachFunc) (again bool, err error) {
	cfg := o.Config
	o.Version, o.Root, o.NewClusterIssuer = buildVersion().Version, os.DirFS("/"), newClusterIssuer
	g, err := gateway.Start(ctx, o)
	if errors.Is(err, tunnel.ErrPortInUse) {
		return false, cfg.ProblemAt("spec.listen.port", fmt.Sprintf("UDP port %d is in use (stop what uses it, or choose another; 0 chooses a free one)", cfg.ListenPort))
	}
	if err != nil {
		return false, err
	}
	detach := func() {}
	if attach != nil {
		if detach, err = attach(g); err != nil {
			return false, errors.Join(err, g.Close(ctx))
		}
	}
	server, err := admin.Listen(admin.ServerOptions{Socket: cfg.AdminSocket, Backend: g, Logger: o.Logger})
	if err == nil {
		if again = reloadOn(ctx, hangups, g); again { // the command that requested it still needs its answer
			answering, cancel := context.WithTimeout(ctx, answerTime)
			_ = server.Shutdown(answering) // the rest is closed
			cancel()
		}
		if errors.Is(context.Cause(ctx), lease.ErrLost) { // another replica is active: release the port first
			err = g.Close(ctx)
		}
		err = errors.Join(err, server.Close())
	} else {
		err = cfg.ProblemAt("spec.admin.socket", err.Error())
	}
	detach()
	wait := drainTime
	switch {
	case again:
		wait = 0 // connections end with the key, so waiting is useless
	case cfg.Kubernetes != nil:
		wait = handOverTime
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	return again, errors.Join(err, g.Close(drain))
}

// reloadOn reloads the configuration at every SIGHUP until ctx ends, or the gateway requests a
// restart. The gateway logs the result.
func reloadOn(ctx context.Context, hangups <-chan os.Signal, g *gateway.Gateway) (again bool) {
	for {
		select {
		case <-hangups:
			_ = g.Hangup(ctx)
		case <-g.Restart():
			return true
		case <-ctx.Done():
			return false
		}
	}
}
