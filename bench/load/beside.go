package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// WatchInterval is the interval of each watch's events when watches run beside requests. Two
// watchers for each of 100 pods that change every 5 s get 40 events a second.
const WatchInterval = 5 * time.Second

// UnitEventP99 is the 99th percentile of the events' delay, beside requests.
const UnitEventP99 = "event-p99-sec"

// besides are watches beside another load; nil means none.
type besides struct{ *fanout }

// watchBeside connects n watches and sends them events in turn until ctx ends.
func watchBeside(ctx context.Context, n, size int, ends Ends, w *workers) (*besides, error) {
	if n == 0 {
		return nil, nil
	}
	if n < 0 || size < stampSize {
		return nil, fmt.Errorf("%d watches, events of %d bytes asked for; want %d bytes", n, size, stampSize)
	}
	f := &fanout{size: size, delays: newDelays(), all: make(chan struct{}, 1)}
	for i := range n {
		if err := f.add(ctx, ends, w); err != nil {
			return nil, fmt.Errorf("watch %d: %w", i+1, err)
		}
	}
	b := &besides{f}
	w.Go(func() { b.trickle(ctx, WatchInterval/time.Duration(n)) })
	return b, nil
}

// trickle sends an event to the next watcher at each interval.
func (b *besides) trickle(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % len(b.queues) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		event := make([]byte, b.size)
		binary.BigEndian.PutUint64(event, uint64(time.Since(b.delays.began)))
		select {
		case b.queues[i] <- event:
		case <-ctx.Done():
			return
		}
	}
}

// report adds the delays of the window's events to r.
func (b *besides) report(r *Result, win window) {
	if b == nil {
		return
	}
	sorted := b.delays.of(win)
	if len(sorted) == 0 {
		return
	}
	values := map[string]float64{UnitEvents: float64(len(sorted)) / r.Seconds}
	if enough(len(sorted), 0.99) {
		values[UnitEventP99] = quantile(sorted, 0.99).Seconds()
	}
	r.with(values)
}
