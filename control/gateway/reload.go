package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
)

// SetConfig replaces the configuration of the running gateway. Unchanged parts are not disturbed.
// On an error the old configuration stays in force.
func (g *Gateway) SetConfig(ctx context.Context, next *config.Resolved) error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	return g.reload(ctx, func() (*config.Resolved, error) { return next, nil })
}

// Reload reads the configuration again and applies it. On an error the old one stays in force.
func (g *Gateway) Reload(ctx context.Context) error {
	return g.reloadFile(ctx, func(*config.Resolved) (state.Trial, error) { return state.Trial{}, nil })
}

// reloadFile reads the configuration again and applies it, on trial if trial returns a non-zero
// one. The trial is stored first, so that no unstored trial takes effect.
func (g *Gateway) reloadFile(ctx context.Context, trial func(*config.Resolved) (state.Trial, error)) error {
	if g.opts.ReadConfig == nil {
		return admin.Conflict("this gateway was not started from a configuration file", "")
	}
	g.reloading.Lock()
	defer g.reloading.Unlock()
	was := g.store.Trial()
	err := g.reload(ctx, func() (*config.Resolved, error) {
		next, err := g.opts.ReadConfig()
		if err != nil {
			return nil, err
		}
		t, err := trial(next)
		if err == nil && t != was {
			err = g.store.SetTrial(t)
		}
		return next, err
	})
	if err == nil {
		g.SetProblems(sourceConfig, nil)
		return nil
	}
	if asked := (*admin.Error)(nil); !errors.As(err, &asked) { // the caller has already been told what it asked for in error
		g.tellRefused(err)
	}
	if g.store.Trial() != was {
		return errors.Join(err, g.store.SetTrial(was))
	}
	return err
}

// tellRefused shows as a check of this gateway why the file is not in force, until one is.
func (g *Gateway) tellRefused(err error) {
	p := catalogue.Params{File: g.opts.Config.File, Detail: err.Error()}
	var one config.Problem
	if all := (config.Problems)(nil); errors.As(err, &all) && len(all) > 0 {
		one = all[0]
	} else {
		errors.As(err, &one)
	}
	if one.Message != "" {
		p.Line, p.Field, p.Detail = one.Origin.Line, one.Path, one.Message
	}
	g.SetProblems(sourceConfig, []check.OwnProblem{{Name: "configuration", Code: catalogue.ConfigRefused, Params: p, Since: time.Now()}})
}

// reload applies what read returns, and counts and logs the result.
func (g *Gateway) reload(ctx context.Context, read func() (*config.Resolved, error)) error {
	next, err := read()
	return g.peers.Change(func(c *roster.Change) error {
		if err == nil {
			err = g.setConfig(ctx, c, next.WithPeersOf(g.peers.Config()))
		}
		result := &g.reloads.success
		if err != nil {
			result = &g.reloads.failed
			g.log.Error("configuration not applied; the old one stays in force",
				"code", string(catalogue.ConfigRefused), "error", err)
		}
		result.Add(1)
		g.announceChange()
		return err
	})
}

// setConfig prepares everything that can fail, then applies the peers, which can also be refused,
// and then commits the rest.
func (g *Gateway) setConfig(ctx context.Context, c *roster.Change, next *config.Resolved) error {
	old := g.peers.Config()
	changes := config.Diff(old, next)
	if err := changes.RestartError(); err != nil {
		return err
	}
	if err := g.peers.CheckConfigured(old, next); err != nil {
		return err
	}
	usePaths, err := g.paths.Prepare(next)
	if err != nil {
		return err
	}
	useFound, err := g.found.Prepare(next)
	if err != nil {
		return err
	}
	useAuth, discard, err := g.auth.Prepare(ctx, next)
	if err != nil {
		return err
	}
	moved, err := g.moveMetrics(ctx, next)
	if err != nil {
		discard()
		return err
	}
	if err := c.Apply(next); err != nil {
		moved.undo(ctx)
		discard()
		return err
	}
	moved.commit()
	useAuth()
	usePaths()
	useFound()
	if !changes.IsEmpty() {
		g.checks.Forget()
	}
	for _, w := range next.Warnings {
		g.log.Warn("configuration", "problem", w.Error())
	}
	g.audit.Record(ctx, audit.Reload, audit.Reason(summary(changes)))
	g.log.Info("configuration applied", "file", next.File, "added", len(changes.Added),
		"removed", len(changes.Removed), "changed", len(changes.Changed), "fields", len(changes.Fields))
	return nil
}

// summary says what a reload changed.
func summary(c config.Changes) string {
	if c.IsEmpty() {
		return "nothing changed"
	}
	fields := make([]string, 0, len(c.Fields))
	for _, f := range c.Fields {
		fields = append(fields, f.Path)
	}
	return fmt.Sprintf("peers added %v, removed %v, changed %v; fields %v", c.Added, c.Removed, c.Changed, fields)
}
