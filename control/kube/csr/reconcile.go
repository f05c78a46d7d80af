package csr

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Run reports what keeps the issuer from issuing. Once SetPeers was called, it deletes old objects,
// and all objects of former peers, and retries if that fails. It returns when ctx ends.
func (i *Issuer) Run(ctx context.Context) {
	ctx = i.logged(ctx)
	i.o.Logger.Info("user names of peers include this gateway's name; bind roles to them", "user", i.objects.user(auth.Subject{Name: "NAME"}))
	if err := i.guard.check(ctx, time.Now()); err != nil && ctx.Err() == nil {
		i.o.Logger.Warn("cannot issue identities to peers", "error", explain(err, ""))
		i.noteGuard(explain(err, ""))
	}
	pause, complained := newBackoff(firstRetry, maxRetry), false
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.wake:
		case <-again:
		}
		next, err := i.reconcile(ctx)
		if ctx.Err() != nil {
			return
		}
		level := slog.LevelDebug
		switch {
		case err != nil:
			next = pause.NextBackOff()
			if !complained {
				level, complained = slog.LevelWarn, true
			}
			i.o.Logger.Log(ctx, level, "failed to delete finished certificate requests", "error", explain(err, ""), "retryIn", next)
		default:
			complained = false
			pause.Reset()
		}
		again = nil
		if next > 0 {
			again = time.After(next)
		}
	}
}

// reconcile deletes the objects that are no longer kept, and returns the time until the next one; 0
// means that there is none.
func (i *Issuer) reconcile(ctx context.Context) (next time.Duration, err error) {
	i.mu.Lock()
	known := i.known
	i.mu.Unlock()
	if !known {
		return 0, nil
	}
	list, err := i.objects.list(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, x := range list {
		left := i.left(x)
		if left > 0 {
			if next == 0 || left < next {
				next = left
			}
			continue
		}
		if err := i.objects.delete(ctx, &x); err != nil {
			errs = append(errs, err)
		}
	}
	return next, errors.Join(errs...)
}

// left returns how long an object is still kept.
func (i *Issuer) left(x object) time.Duration {
	var key peer.PublicKey
	if key.UnmarshalText([]byte(x.Annotations[annotationKey])) != nil {
		return 0
	}
	i.mu.Lock()
	have, ok := i.peers[x.Labels[labelPeer]]
	i.mu.Unlock()
	if !ok || have != key {
		return 0
	}
	return keepFor - x.age()
}
