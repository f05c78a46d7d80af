package check

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel/wake"
)

// watched is one peer and the goroutine that checks it.
type watched struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	demand chan demand
	wake   wake.Signal // holds at most one request for a round soon

	mu sync.Mutex
	// found is the last round, and last the same as it is shown. recent remembers those before.
	found, last Round
	recent      recent
	// demands counts the waiting callers of Check. While there are any no scheduled round begins,
	// and interrupt ends the current one.
	demands   int
	interrupt context.CancelFunc
	// partial are the results of the current round so far.
	partial []verdict.Finding
}

// demand is a round that a caller waits for.
type demand struct {
	answer chan Round
	// measured also measures loss and sizes, which takes 2 s.
	measured bool
}

// publish adds to the results of the current round.
func (w *watched) publish(res verdict.Finding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial = append(w.partial, res)
}

// wanted counts the callers that wait for a round on demand, and makes room for it.
func (w *watched) wanted(more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.demands += more
	if w.demands > 0 && w.interrupt != nil {
		w.interrupt()
	}
}

// begin starts a round. It returns what the previous one found, and a context that ends when a caller demands
// another round; false if one already does.
func (w *watched) begin(ctx context.Context, onDemand bool) (context.Context, context.CancelFunc, Round, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !onDemand && w.demands > 0 {
		return ctx, func() {}, w.found, false
	}
	w.partial = nil
	ctx, cancel := context.WithCancel(ctx)
	if !onDemand {
		w.interrupt = cancel
	}
	return ctx, func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.interrupt = nil
	}, w.found, true
}

// suspects reports whether a check failed recently, and whether one of a service did.
func (w *watched) suspects(now time.Time) (any, service bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.recent.suspects(now)
}

// put stores a round, and returns it as it is shown.
func (w *watched) put(found Round, now time.Time) Round {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = found
	return w.show(now)
}

// again returns the last round as it is shown now.
func (w *watched) again(now time.Time) Round {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.show(now)
}

// show is again; w.mu is held.
func (w *watched) show(now time.Time) Round {
	w.last = w.found
	w.last.Findings = w.recent.shown(w.found.Findings, now)
	return w.last
}

// count counts the last round, by its findings correlated with this gateway's own, if it counts.
func (w *watched) count(rooted []verdict.Finding, started time.Time, scheduled bool, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := w.recent.counts(scheduled, now)
	if counts {
		w.recent.peer(rooted, started, now)
	} else {
		w.recent.lasts(rooted, now)
	}
	return counts
}

// round returns the latest one, as it is shown.
func (w *watched) round() Round {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}
