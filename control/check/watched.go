package check

import (
	"context"
	"sync"

	"github.com/postern-dev/postern/control/verdict"
)

// watched is one peer and the goroutine that checks it.
type watched struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	demand chan demand
	wake   chan struct{} // holds at most one request for a round soon

	mu   sync.Mutex
	last Round
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

// begin starts a round. It returns the previous one, and a context that ends when a caller demands
// another round; false if one already does.
func (w *watched) begin(ctx context.Context, onDemand bool) (context.Context, context.CancelFunc, Round, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !onDemand && w.demands > 0 {
		return ctx, func() {}, w.last, false
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
	}, w.last, true
}

// round returns the latest one.
func (w *watched) round() Round {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}
