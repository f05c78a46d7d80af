package secrets

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

const (
	// watchEvery is the interval at which the Secrets are verified.
	watchEvery = 30 * time.Second
	// lookTimeout bounds the verification of one of them.
	lookTimeout = 5 * time.Second
	// reportedFor is how long a deletion or change is reported.
	reportedFor = time.Hour
	// checkName is the gateway's check that reports it.
	checkName = "state"
)

// Watch verifies the Secrets until ctx ends, and restores what someone deleted or changed:
// otherwise the next start would lack it. tell is called with the current problems whenever they
// change.
func (b *Backend) Watch(ctx context.Context, tell func([]check.OwnProblem)) {
	var told []check.OwnProblem
	next := time.NewTicker(watchEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		for _, name := range Names(b.o.Release) {
			if err := b.rewrite(ctx, name); err != nil && ctx.Err() == nil {
				b.logger.Debug("failed to verify a Secret of the state", slog.Any("error", err))
			}
		}
		if now := b.problems(ctx, time.Now()); !reflect.DeepEqual(now, told) {
			told = now
			tell(now)
		}
	}
}

// rewrite restores one object if it differs from what was written.
func (b *Backend) rewrite(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if b.fenced || b.seen[name] == nil {
		return nil
	}
	lacks, err := b.lookAgain(ctx, name)
	if err == nil && lacks {
		err = b.save(ctx, name, "", nil)
	}
	return b.settle(name, err)
}

// problems returns a problem that names the Secrets restored within reportedFor.
func (b *Backend) problems(ctx context.Context, now time.Time) []check.OwnProblem {
	if b.lock(ctx) != nil {
		return nil
	}
	defer b.unlock()
	maps.DeleteFunc(b.made, func(_ string, at time.Time) bool { return now.Sub(at) >= reportedFor })
	if len(b.made) == 0 {
		b.manager = ""
		return nil
	}
	p := check.OwnProblem{Name: checkName, Code: catalogue.StateDeleted, Since: slices.MinFunc(slices.Collect(maps.Values(b.made)), time.Time.Compare)}
	p.Params.Names, p.Params.Namespace, p.Params.Manager = slices.Sorted(maps.Keys(b.made)), b.namespace, b.manager
	return []check.OwnProblem{p}
}
