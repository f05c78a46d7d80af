package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/metrics"
)

// SetConfig replaces the configuration of the running gateway. What did not change is
// not disturbed. On an error the old one is in force as before.
func (g *Gateway) SetConfig(ctx context.Context, next *config.Resolved) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	err := g.setConfig(ctx, next)
	result := metrics.ReloadSuccess
	if err != nil {
		result = metrics.ReloadError
		g.log.Error("the configuration was not applied; the old one stays in force",
			"code", string(check.ConfigRefused), "file", next.File, "error", err)
	}
	g.reloads[result]++
	g.publish()
	return err
}

func (g *Gateway) setConfig(ctx context.Context, next *config.Resolved) error {
	old := g.cfg
	changes := config.Diff(old, next)
	if err := changes.RestartError(); err != nil {
		return err
	}
	issuer, err := openIssuer(g, next)
	if err != nil {
		return err
	}
	if err := g.apply(next); err != nil {
		return err
	}
	g.auth.setIssuer(issuer)
	var errs []error
	if old.HTTPAddress != next.HTTPAddress {
		errs = append(errs, g.moveMetrics(ctx, next))
	}
	if fmt.Sprint(old.Discovery) != fmt.Sprint(next.Discovery) {
		errs = append(errs, g.replaceAgent(next))
	}
	g.audit.Record(ctx, audit.Reload, audit.Reason(summary(changes)))
	g.log.Info("configuration applied", "file", next.File, "added", len(changes.Added),
		"removed", len(changes.Removed), "changed", len(changes.Changed), "fields", len(changes.Fields))
	return errors.Join(errs...)
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

// Reload reads the configuration again and applies it. On an error the old one is in
// force as before.
func (g *Gateway) Reload(ctx context.Context) error {
	if g.opts.ReadConfig == nil {
		return admin.Conflict("this gateway was not started from a configuration file", "")
	}
	next, err := g.opts.ReadConfig()
	if err != nil {
		g.countReload(metrics.ReloadError)
		g.log.Error("the configuration was not applied; the old one stays in force",
			"code", string(check.ConfigRefused), "error", err)
		return err
	}
	for _, w := range next.Warnings {
		g.log.Warn("configuration", "code", string(check.ConfigRefused), "problem", w.Error())
	}
	return g.SetConfig(ctx, next)
}

func (g *Gateway) countReload(result string) {
	g.changing.Lock()
	defer g.changing.Unlock()
	g.reloads[result]++
	g.publish()
}
