package lease

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	labelTimeout = 2 * time.Second
	labelRetry   = time.Second
	labelSlowest = 30 * time.Second
)

// labels applies the wanted labels of pods, with retries. Nothing waits for it, except the end.
type labels struct {
	pods    Pods
	logger  *slog.Logger
	pending chan labelling // holds at most the newest
	mu      sync.Mutex     // held to replace it
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

type labelling struct {
	active bool
	// from is the identity whose pod is to lose the label.
	from string
}

func newLabels(pods Pods, logger *slog.Logger) *labels {
	b := &labels{pods: pods, logger: logger, pending: make(chan labelling, 1)}
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	if pods != nil {
		b.wg.Go(func() { b.run(ctx) })
	}
	return b
}

// want replaces the pending label change.
func (b *labels) want(active bool, from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.pending:
	default:
	}
	b.pending <- labelling{active, from}
}

// drop removes our own label now, if the API server answers in time.
func (b *labels) drop() {
	b.close()
	if b.pods == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), labelTimeout)
	defer cancel()
	if err := b.pods.Mark(ctx, false); err != nil {
		b.logger.Warn("failed to remove the active label; the pod keeps it until it is gone", slog.Any("error", err))
	}
}

// close gives up what is pending.
func (b *labels) close() {
	b.stop()
	b.wg.Wait()
}

func (b *labels) run(ctx context.Context) {
	var w labelling
	pause, complained := labelRetry, false
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case w = <-b.pending:
			timer.Stop()
			pause, complained = labelRetry, false
		case <-timer.C:
		}
		err := b.apply(ctx, w)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if !complained {
			b.logger.Warn("failed to label a pod; Services may route elsewhere; will retry", slog.Bool("active", w.active), slog.Any("error", err))
			complained = true
		}
		timer.Reset(pause)
		pause = min(2*pause, labelSlowest)
	}
}

func (b *labels) apply(ctx context.Context, w labelling) error {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	if err := b.pods.Mark(ctx, w.active); err != nil {
		return err
	}
	if w.from == "" {
		return nil
	}
	return b.pods.Unmark(ctx, w.from)
}
