package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// gained is the result of a standby that takes the lease.
type gained struct {
	lease *coordinationv1.Lease
	// from is the previous holder; empty if there was none, or if it was this pod.
	from string
	at   time.Time
}

// standBy returns with the lease, or with the error of ctx. It does not take it before notBefore.
func (l *Lease) standBy(ctx context.Context, notBefore time.Time) (gained, error) {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan *coordinationv1.Lease)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var present watching
	wg.Go(func() { l.follow(ctx, &present, events) })
	v := silence{timing: l.t, needed: l.t.duration}
	var failures outage
	var seen *coordinationv1.Lease
	defer func() { l.withdraw(ctx, seen) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var x *coordinationv1.Lease
		select {
		case <-ctx.Done():
			return gained{}, ctx.Err()
		case x = <-events:
		case <-timer.C:
			var err error
			if x, err = l.look(ctx); err != nil {
				present.end() // otherwise its connection is kept, which may be dead
				if ctx.Err() == nil {
					failures.failed(l, "the lease cannot be read; this replica cannot take over", err)
				}
				timer.Reset(l.t.look)
				continue
			}
		}
		now := time.Now()
		failures.over(l)
		l.answered(now, holder(x))
		seen = x
		v.needed = max(l.t.duration, lasts(x))
		v.heard(now, mark(x))
		if free := holder(x) == "" || holder(x) == l.o.Identity; (free || v.over()) && !now.Before(notBefore) {
			if got, ok := l.take(ctx, x, &failures); ok {
				return got, nil
			}
			timer.Reset(l.t.retry)
			continue
		} else if free {
			timer.Reset(notBefore.Sub(now))
			continue
		}
		l.announce(ctx, x)
		timer.Reset(time.Until(v.next(now)))
	}
}

// announce tells the holder that there is a standby. A failure is retried at the holder's next
// write.
func (l *Lease) announce(ctx context.Context, x *coordinationv1.Lease) {
	if x.Annotations[waiting] != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.t.request)
	defer cancel()
	if _, err := l.api.update(ctx, announced(x, l.o.Identity)); err != nil && !apierrors.IsConflict(err) {
		l.logger.Debug("failed to announce this standby to the active replica", slog.Any("error", explain(err)))
	}
}

// withdraw undoes announce when ctx has ended. A failure is harmless: the holder only steps down
// sooner than necessary.
func (l *Lease) withdraw(ctx context.Context, x *coordinationv1.Lease) {
	if ctx.Err() == nil || x == nil || x.Annotations[waiting] != l.o.Identity || holder(x) == l.o.Identity {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.t.request)
	defer cancel()
	if _, err := l.api.update(ctx, announced(x, "")); err != nil && !apierrors.IsConflict(err) {
		l.logger.Debug("failed to tell the active replica that this standby is leaving", slog.Any("error", explain(err)))
	}
}

// look reads the lease. A missing one has no holder.
func (l *Lease) look(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, l.t.request)
	defer cancel()
	x, err := l.api.get(ctx)
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{}, nil
	}
	if err != nil && ctx.Err() != nil {
		l.api.redial()
	}
	return x, err
}

// take writes the lease as our own, if it has not changed.
func (l *Lease) take(ctx context.Context, x *coordinationv1.Lease, failures *outage) (gained, bool) {
	ctx, cancel := context.WithTimeout(ctx, l.t.request)
	defer cancel()
	start := time.Now()
	next := taken(x, l.o.Identity, l.t.duration, start)
	owned(next, l.ownedBy())
	put := l.api.update
	if x.ResourceVersion == "" {
		put = l.api.create
	}
	got, err := put(ctx, next)
	switch {
	case err == nil:
		from := holder(x)
		if from == l.o.Identity {
			from = ""
		}
		return gained{got, from, start}, true
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), errors.Is(ctx.Err(), context.Canceled):
	default:
		failures.failed(l, "the lease cannot be written; this replica cannot take over", err)
	}
	return gained{}, false
}

// watching is the current watch.
type watching struct {
	mu     sync.Mutex
	cancel context.CancelFunc
}

func (w *watching) begin(ctx context.Context) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, w.cancel = context.WithCancel(ctx)
	return ctx
}

func (w *watching) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
	}
}

// follow passes on the states of the lease that a watch reports, until ctx ends. Without a watch
// the lease is still read, only more often.
func (l *Lease) follow(ctx context.Context, present *watching, events chan<- *coordinationv1.Lease) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		watch := present.begin(ctx)
		err := l.api.watch(watch, func(x *coordinationv1.Lease) {
			select {
			case events <- x:
			case <-watch.Done():
			}
		})
		present.end()
		if err != nil && ctx.Err() == nil {
			l.logger.Debug("failed to watch the lease", slog.Any("error", err))
		}
		pause.Reset(l.t.rewatch)
	}
}

// outage limits the log to one warning for each outage.
type outage struct{ on bool }

func (o *outage) failed(l *Lease, text string, err error) {
	if !o.on {
		l.logger.Warn("failed to read or renew the lease",
			slog.String("lease", l.o.Name), slog.String("effect", text), slog.Any("error", explain(err)))
	}
	o.on = true
}

func (o *outage) over(l *Lease) {
	if o.on {
		l.logger.Info("lease is readable again", slog.String("lease", l.o.Name))
	}
	o.on = false
}
