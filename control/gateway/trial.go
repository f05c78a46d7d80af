package gateway

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
)

// sourceConfig is the source of the problem that the file is not in force.
const sourceConfig = "configuration"

// ConfigTry is Reload for a configuration that counts for a time alone, unless ConfigConfirm comes
// before: whoever made it through the tunnel may have cut himself off. What it is undone to is what
// was confirmed last, however many were tried since. It stays in the state: after its time a file
// that is still the same does not count at a restart either, until it is read again by Reload.
func (g *Gateway) ConfigTry(ctx context.Context, r api.ConfigTryRequest) (api.ConfigTryResponse, error) {
	within := time.Duration(r.Within)
	if err := roster.CheckTry(within); err != nil {
		return api.ConfigTryResponse{}, err
	}
	var t state.Trial
	err := g.reloadFile(ctx, func(next *config.Resolved) (state.Trial, error) {
		now := g.peers.Config()
		kept := cmp.Or(g.store.Trial().Kept, now.Text())
		if kept != next.Text() {
			t = state.Trial{Kept: kept, Tried: next.Fingerprint(), Until: time.Now().Add(within).Round(0)}
		} else if now.Text() == kept && !config.Diff(now, next.WithPeersOf(now)).IsEmpty() {
			return t, admin.Conflict("only files that the configuration names have changed, and the gateway keeps no copies of those to return to",
				"read it without --confirm-within: postern config reload")
		}
		return t, nil
	})
	return api.ConfigTryResponse{UndoneAt: t.Until}, err
}

// ConfigConfirm has a configuration stay that would be undone.
func (g *Gateway) ConfigConfirm(context.Context) error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	switch t := g.store.Trial(); {
	case t.Tried == "":
		return admin.Conflict("no configuration waits to be confirmed", "")
	case t.Tried != g.peers.Config().Fingerprint():
		return admin.Conflict("the configuration was undone already", "if it is to count, read it again: postern config reload")
	}
	return g.store.SetTrial(state.Trial{})
}

// Hangup is Reload for a signal, which may come from anything, such as the end of the session that the
// change has cut: a configuration that waits to be confirmed goes on waiting.
func (g *Gateway) Hangup(ctx context.Context) error {
	return g.reloadFile(ctx, func(next *config.Resolved) (state.Trial, error) {
		if t := g.store.Trial(); t.Tried == next.Fingerprint() && time.Now().Before(t.Until) {
			return t, nil
		}
		return state.Trial{}, nil
	})
}

// configUndoneAt is when the configuration is undone unless it is confirmed; nil: it stays.
func (g *Gateway) configUndoneAt() *time.Time {
	if t := g.store.Trial(); t.Tried != "" && t.Tried == g.peers.Config().Fingerprint() {
		return timeOrNil(t.Until)
	}
	return nil
}

// undoUnconfirmed returns to the configuration before one that nobody has confirmed in time.
func (g *Gateway) undoUnconfirmed(now time.Time) {
	if t := g.store.Trial(); t.Tried == "" || now.Before(t.Until) || now.Before(g.undoAgain) || !g.reloading.TryLock() {
		return // or at the next turn
	}
	defer g.reloading.Unlock()
	t := g.store.Trial()
	if now.Before(t.Until) || t.Tried != g.peers.Config().Fingerprint() {
		return // confirmed at the last moment, or undone
	}
	if err := g.reload(g.ctx, func() (*config.Resolved, error) { return g.peers.Config().Of(t.Kept) }); err != nil {
		g.undoAgain = now.Add(roster.RetryUndo)
		g.tellRefused(fmt.Errorf("nobody confirmed the one in force, and the one before cannot return: %w", err))
		return
	}
	g.tellUndone(t)
}

// confirmed is the configuration to start with: the file's, or the one before if nobody confirmed the
// file's in time. Whoever changed the file since has decided, and the trial is over. The reload that
// began it took no change that a running gateway could not make.
func (g *Gateway) confirmed(file *config.Resolved) *config.Resolved {
	t := g.store.Trial()
	switch {
	case t.Tried == "":
		return file
	case t.Tried != file.Fingerprint():
		if err := g.store.SetTrial(state.Trial{}); err != nil {
			g.log.Warn("cannot store that the configuration on trial was replaced", "error", err)
		}
		return file
	case time.Now().Before(t.Until):
		return file
	}
	kept, err := file.Of(t.Kept)
	if err != nil {
		g.log.Error("the configuration before the one that nobody confirmed is of no use any more; the file counts", "error", err)
		return file
	}
	g.tellUndone(t)
	return kept.WithPeersOf(file)
}

// tellUndone says that the file is not in force.
func (g *Gateway) tellUndone(t state.Trial) {
	g.log.Warn("a configuration that nobody confirmed is undone", "code", string(catalogue.ConfigUndone), "until", t.Until)
	g.SetProblems(sourceConfig, []check.OwnProblem{{
		Name: "configuration", Code: catalogue.ConfigUndone, Since: t.Until,
		Params: catalogue.Params{File: g.opts.Config.File, Detail: fmt.Sprintf("nobody confirmed it by %s", t.Until.UTC().Format(time.DateTime+"Z"))},
	}})
}
