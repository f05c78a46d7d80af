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

// runGateway runs a gateway with its admin socket until ctx ends, and drains it. One that
// wants to be restarted is.
func runGateway(ctx context.Context, cfg *config.Resolved, load func() (*config.Resolved, error), log *slog.Logger) error {
	hangups := make(chan os.Signal, 1) // Taken first: unhandled, a SIGHUP would kill.
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if cfg.Kubernetes != nil {
		return runInCluster(ctx, cfg, load, hangups, log)
	}
	return runAgain(ctx, cfg, load, func(cfg *config.Resolved) (bool, error) {
		return runOnce(ctx, gateway.Options{Config: cfg, ReadConfig: load, Logger: log}, hangups, nil)
	})
}

// runAgain runs a gateway as often as it wants to be restarted.
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

// answerTime is how long commands that a gateway answers may take to be answered when it
// restarts.
const answerTime = 2 * time.Second

// handOverTime is how long open connections may go on where another replica waits for the
// role: a watch never ends by itself, and new connections are not served until it is over.
const handOverTime = 2 * time.Second

// attachFunc joins a gateway to what runs beside it, until detach is called.
type attachFunc func(*gateway.Gateway) (detach func(), err error)

// runOnce runs a gateway until ctx ends or it wants to be restarted. attach may be nil.
func runOnce(ctx context.Context, o gateway.Options, hangups <-chan os.Signal, attach attachFunc) (again bool, err error) {
	cfg := o.Config
	o.Version, o.Root, o.NewClusterIssuer = buildVersion().Version, os.DirFS("/"), newClusterIssuer
	g, err := gateway.Start(ctx, o)
	if errors.Is(err, tunnel.ErrPortInUse) {
		return false, cfg.ProblemAt("spec.listen.port", fmt.Sprintf("UDP port %d is in use (stop what has it, or choose another; 0 takes a free one)", cfg.ListenPort))
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
		if again = reloadOn(ctx, hangups, g); again { // whoever wanted it has yet to be answered
			answering, cancel := context.WithTimeout(ctx, answerTime)
			_ = server.Shutdown(answering) // what is left is ended
			cancel()
		}
		if errors.Is(context.Cause(ctx), lease.ErrLost) { // another replica is at work: the port first
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
		wait = 0 // connections end with the key: nothing is gained by waiting
	case cfg.Kubernetes != nil:
		wait = handOverTime
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	return again, errors.Join(err, g.Close(drain))
}

// reloadOn reads the configuration again at every hang-up until ctx ends, or the gateway
// wants to be restarted. The gateway itself logs what came of it.
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
