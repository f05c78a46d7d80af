package discovery

import (
	"context"
	"sync"
	"time"
)

// refreshLook is how often the outcome of a refresh is looked for.
const refreshLook = 20 * time.Millisecond

// Refresh asks every STUN server again, and the router about its mapping, and waits until
// each has answered or failed, and until a test of the NAT that runs has ended, or until
// ctx ends. [Agent.Run] must run.
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
	a.wakeUp()
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

// Ask asks every STUN server again, and waits for no answer.
func (a *Agent) Ask() {
	a.mu.Lock()
	a.g.askAll(time.Now(), nil)
	a.mu.Unlock()
	a.wakeUp()
}

// settledSince says whether every server has been heard, or given up, after a moment, and
// no test runs.
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
