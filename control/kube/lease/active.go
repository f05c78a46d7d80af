package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/kube/objects"
)

// serve runs the active role, from taking the lease to its loss or the end. lost says which; err is
// what active returned.
func (l *Lease) serve(ctx context.Context, got gained, label *labels, active func(context.Context) error) (lost bool, err error) {
	role, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	at := term(got.lease)
	l.SetPublicKey(got.lease.Annotations[publicKey])
	// One that was silent may live anyway; an earlier pod of our own name does not.
	silent := got.from != "" && pod(got.from) != pod(l.o.Identity)
	l.written(got.at, silent || rival(got.lease) != "")
	l.enter(Active, at, lose)
	l.logger.Info("this replica is now active", slog.String("lease", l.o.Name), slog.String("term", at), slog.String("before", got.from))
	label.want(true, got.from)
	leave := context.AfterFunc(role, func() {
		if errors.Is(context.Cause(role), ErrLost) {
			label.want(false, "")
		}
	})
	defer leave()

	// Writing continues while active shuts down, whatever the reason.
	running, stopped := context.WithCancel(context.WithoutCancel(ctx))
	result := make(chan error, 1)
	go func() {
		defer stopped()
		result <- active(role)
	}()
	last := l.keep(running, role, lose, got, silent)
	err = <-result
	lost = errors.Is(context.Cause(role), ErrLost)
	l.enter(Standby, "", nil)
	if lost {
		l.logger.Warn("this replica is no longer active", slog.String("lease", l.o.Name), slog.Any("reason", context.Cause(role)))
		return true, err
	}
	label.drop()
	l.giveBack(ctx, last)
	return false, err
}

// keep writes the lease until running ends, or until it is lost, and returns it as last written.
// silent: the previous holder did not release it, and may be alive.
func (l *Lease) keep(running, role context.Context, lose context.CancelCauseFunc, got gained, silent bool) *coordinationv1.Lease {
	have, answered := got.lease, got.at
	var failures outage
	timer := time.NewTimer(l.t.renew)
	defer timer.Stop()
	for {
		select {
		case <-running.Done():
			return have
		case <-timer.C:
		}
		if errors.Is(context.Cause(role), ErrLost) {
			<-running.Done()
			return have
		}
		start := time.Now()
		next, err := l.renew(running, have)
		switch {
		case err == nil:
			have, answered = next, start
			failures.over(l)
			l.written(start, silent || rival(have) != "")
			timer.Reset(time.Until(start.Add(l.t.renew)))
			continue
		case errors.Is(err, ErrLost):
			lose(err)
			<-running.Done()
			return have
		case running.Err() != nil:
		case l.o.WithoutAPI > 0 && (silent || rival(have) != "") && time.Since(answered) >= l.o.WithoutAPI:
			lose(fmt.Errorf("%w: the API server has given no good answer for %v: %w", ErrLost, l.o.WithoutAPI, err))
		default:
			failures.failed(l, "the gateway goes on; no other replica takes over unless the API server answers that one", err)
		}
		timer.Reset(l.t.retry)
		if answers(err) { // it is not away, so there is no hurry
			timer.Reset(l.t.renew)
		}
	}
}

// renew writes the lease. If another replica has it the error is an [ErrLost].
func (l *Lease) renew(ctx context.Context, have *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, l.t.request)
	defer cancel()
	next, err := l.api.update(ctx, l.renewed(have))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		if have, err = l.again(ctx, have); err != nil {
			return nil, err
		}
		put := l.api.update
		if have.ResourceVersion == "" {
			put = l.api.create
		}
		next, err = put(ctx, l.renewed(have))
	}
	if err != nil && ctx.Err() != nil {
		l.api.redial()
	}
	return next, err
}

// renewed returns the lease as its holder writes it again.
func (l *Lease) renewed(have *coordinationv1.Lease) *coordinationv1.Lease {
	next := taken(have, l.o.Identity, l.t.duration, time.Now())
	owned(next, l.ownedBy())
	tells(next, l.PublicKey())
	return next
}

// again returns the current lease, if nobody else has it: someone added a label, a write arrived
// whose answer was lost, or the object was deleted.
func (l *Lease) again(ctx context.Context, have *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	x, err := l.api.get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Labels: have.Labels, OwnerReferences: have.OwnerReferences}, Spec: have.Spec,
		}, nil
	case err != nil:
		return nil, err
	case holder(x) != l.o.Identity && holder(x) != "":
		return nil, fmt.Errorf("%w: %s holds the lease", ErrLost, holder(x))
	case holder(x) == "":
		// Another replica had it and released it, or a person did: what was written meanwhile is
		// unknown.
		return nil, fmt.Errorf("%w: nobody holds the lease", ErrLost)
	case term(x) != term(have):
		return nil, fmt.Errorf("%w: %s holds it in another term", ErrLost, holder(x))
	}
	return x, nil
}

// giveBack releases the lease, so that another replica can take it at once.
func (l *Lease) giveBack(ctx context.Context, have *coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_, err := l.api.update(ctx, given(have, time.Now()))
	if apierrors.IsConflict(err) { // a label, or our last write
		var now *coordinationv1.Lease
		if now, err = l.again(ctx, have); err == nil && now.ResourceVersion != "" {
			_, err = l.api.update(ctx, given(now, time.Now()))
		}
	}
	if err != nil && !errors.Is(err, ErrLost) && !apierrors.IsNotFound(err) {
		l.logger.Warn("failed to release the lease; another replica waits until it expires",
			slog.String("lease", l.o.Name), slog.Any("error", explain(err)))
	}
}

// answers reports whether the API server itself returned the error, and it is not transient.
func answers(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}

// explain adds what to do about an error.
func explain(err error) error {
	if objects.LacksRight(err) {
		return fmt.Errorf("%w (the gateway's Role needs leases get, watch and update for this name, and create; the chart gives it)", err)
	}
	return err
}
