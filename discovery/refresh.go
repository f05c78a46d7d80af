package discovery

import (
	"context"
	"sync"
	"time"
)

// refreshLook is how often a refresh checks for its result.
const refreshLook = 20 * time.Millisecond

// Refresh queries every STUN server and the router again, and waits until each has answered or
// failed and a running NAT test has ended, or until ctx ends. [Agent.Run] must be running.
func (a *Agent) Refresh(ctx context.Context) {
	if m := a.mapper.Mapper; m != nil {
		var asking sync.WaitGroup
		asking.Go(func() { m.Refresh(ctx) })
		defer asking.Wait()
	}
	a.mu.Lock()
	start := time.Now()
	a.g.askAll(start, nil)
	a.mu.Unlock()
	a.wake.Set()
	tick := time.NewTicker(refreshLook)
	defer tick.Stop()
	for {
		a.mu.Lock()
		settled := a.g.settledSince(start)
		a.mu.Unlock()
		if settled {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Ask queries every STUN server again, without waiting.
func (a *Agent) Ask() {
	a.mu.Lock()
	a.g.askAll(time.Now(), nil)
	a.mu.Unlock()
	a.wake.Set()
}

// settledSince reports whether every server has answered, or been given up, since start, and no
// test runs.
func (g *gatherer) settledSince(start time.Time) bool {
	for _, s := range g.servers {
		for _, t := range s.targets {
			if t.asking || !t.due.After(start) {
				return false
			}
		}
	}
	return len(g.pending()) == 0 && g.tests.running == nil
}
