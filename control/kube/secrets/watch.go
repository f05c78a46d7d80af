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
	// watchEvery is how often is looked whether the Secrets are as they were written.
	watchEvery = 30 * time.Second
	// lookTimeout bounds a look at one of them.
	lookTimeout = 5 * time.Second
	// toldFor is how long is told that one had been deleted.
	toldFor = time.Hour
	// checkName is the check of the gateway that tells it.
	checkName = "state"
)

// Watch looks until ctx ends whether the Secrets are as they were written, and writes again what
// someone deleted or changed: the next start would be without it. tell takes what is to be told
// of it, whenever that changes.
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

// rewrite writes one object again if it is not as it was written.
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

// problems are the Secrets that were made again.
func (b *Backend) problems(ctx context.Context, now time.Time) []check.OwnProblem {
	if b.lock(ctx) != nil {
		return nil
	}
	defer b.unlock()
	maps.DeleteFunc(b.made, func(_ string, at time.Time) bool { return now.Sub(at) >= toldFor })
	if len(b.made) == 0 {
		return nil
	}
	p := check.OwnProblem{Name: checkName, Code: catalogue.StateDeleted, Since: slices.MinFunc(slices.Collect(maps.Values(b.made)), time.Time.Compare)}
	p.Params.Names = slices.Sorted(maps.Keys(b.made))
	return []check.OwnProblem{p}
}
