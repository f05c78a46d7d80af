package lease

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/kube/objects"
)

const (
	labelTimeout = 2 * time.Second
	labelRetry   = time.Second
	labelSlowest = 30 * time.Second
	// labelRefusals is how many refusals in a row are reported: a starting API server refuses
	// everything until it has read its roles.
	labelRefusals = 3
)

// labels applies the wanted labels of pods, with retries. Nothing waits for it, except the end.
type labels struct {
	pods    Pods
	logger  *slog.Logger
	refused func(error)    // see Options.OnLabelRefused; not nil
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

func newLabels(pods Pods, logger *slog.Logger, refused func(error)) *labels {
	if refused == nil {
		refused = func(error) {}
	}
	b := &labels{pods: pods, logger: logger, refused: refused, pending: make(chan labelling, 1)}
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
	pause, complained, refusals := labelRetry, false, 0
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case w = <-b.pending:
			timer.Stop()
			pause, complained, refusals = labelRetry, false, 0
		case <-timer.C:
		}
		err := b.apply(ctx, w)
		if ctx.Err() != nil {
			continue
		}
		if err == nil {
			b.refused(nil)
			continue
		}
		if objects.Final(err) {
			refusals++
		}
		if refusals == labelRefusals {
			b.refused(err)
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
