package discovery

import (
	"context"
	"sync"
	"time"
)

// drive takes steps until ctx ends, and returns its cause. It takes one at once, whenever it is
// woken, and at the time that the last step returned. It waits for the goroutines of the steps.
func drive(ctx context.Context, wake <-chan struct{}, step func(context.Context, *sync.WaitGroup) time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	var begun sync.WaitGroup
	defer begun.Wait()
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		case <-wake:
		}
		timer.Reset(time.Until(step(ctx, &begun)))
	}
}
