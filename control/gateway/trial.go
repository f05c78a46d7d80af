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

// sourceConfig is the problem source for a file that is not in force.
const sourceConfig = "configuration"

// ConfigTry is Reload on trial: the configuration is rolled back at its deadline unless
// ConfigConfirm comes first, since whoever made it through the tunnel may be locked out. It rolls
// back to the last confirmed configuration, however many were tried since. The trial is stored:
// after the deadline, an unchanged file is ignored at a restart too, until Reload reads it again.
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
			t = state.Trial{Kept: kept, Tried: next.Fingerprint(), Until: time.Now().Add(within), Within: within}
		} else if now.Text() == kept && !config.Diff(now, next.WithPeersOf(now)).IsEmpty() {
			return t, admin.Conflict("only files that the configuration names have changed, and the gateway keeps no copies of those to return to",
				"read it without --confirm-within: postern config reload")
		}
		return t, nil
	})
	return api.ConfigTryResponse{UndoneAt: t.Until}, err
}

// ConfigConfirm makes the configuration on trial permanent.
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

// Hangup is Reload on a signal. The signal may have any cause, even the end of the session that the
// change has cut off, so it does not confirm a configuration on trial.
func (g *Gateway) Hangup(ctx context.Context) error {
	return g.reloadFile(ctx, func(next *config.Resolved) (state.Trial, error) {
		if t := g.store.Trial(); t.Tried == next.Fingerprint() && time.Now().Before(t.Until) {
			return t, nil
		}
		return state.Trial{}, nil
	})
}

// configUndoneAt is when the configuration is rolled back unless it is confirmed; nil if it stays.
func (g *Gateway) configUndoneAt() *time.Time {
	if t := g.store.Trial(); t.Tried != "" && t.Tried == g.peers.Config().Fingerprint() {
		return timeOrNil(t.Until)
	}
	return nil
}

// undoUnconfirmed rolls back a configuration that was not confirmed in time.
func (g *Gateway) undoUnconfirmed(now time.Time) {
	if t := g.store.Trial(); t.Tried == "" || now.Before(t.Until) || now.Before(g.undoAgain) || !g.reloading.TryLock() {
		return // or on the next turn
	}
	defer g.reloading.Unlock()
	t := g.store.Trial()
	if now.Before(t.Until) || t.Tried != g.peers.Config().Fingerprint() {
		return // confirmed at the last moment, or already rolled back
	}
	if err := g.reload(g.ctx, func() (*config.Resolved, error) { return g.peers.Config().Of(t.Kept) }); err != nil {
		g.undoAgain = now.Add(roster.RetryUndo)
		g.tellRefused(fmt.Errorf("nobody confirmed the one in force, and the one before cannot return: %w", err))
		return
	}
	g.tellUndone(t)
}

// confirmed returns the configuration to start with: the file's, or the previous one if nobody
// confirmed the file's in time. If the file has changed since, that is a decision, and the trial is
// over. The reload that began the trial accepted no change that needs a restart.
func (g *Gateway) confirmed(file *config.Resolved) *config.Resolved {
	t := g.store.Trial()
	switch {
	case t.Tried == "":
		return file
	case t.Tried != file.Fingerprint():
		if err := g.store.SetTrial(state.Trial{}); err != nil {
			g.log.Warn("failed to store that the configuration on trial was replaced", "error", err)
		}
		return file
	case time.Now().Before(t.Until):
		return file
	}
	kept, err := file.Of(t.Kept)
	if err != nil {
		g.log.Error("cannot restore the configuration from before the unconfirmed one; using the file", "error", err)
		return file
	}
	g.tellUndone(t)
	return kept.WithPeersOf(file)
}

// tellUndone shows that the file is not in force.
func (g *Gateway) tellUndone(t state.Trial) {
	g.log.Warn("rolled back an unconfirmed configuration", "code", string(catalogue.ConfigUndone), "until", t.Until)
	g.SetProblems(sourceConfig, []check.OwnProblem{{
		Name: "configuration", Code: catalogue.ConfigUndone, Since: t.Until,
		Params: catalogue.Params{File: g.opts.Config.File, Detail: fmt.Sprintf("nobody confirmed it by %s", t.Until.UTC().Format(time.DateTime+"Z"))},
	}})
}
