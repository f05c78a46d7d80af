package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/idle"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/tunnel"
)

const (
	// heartbeatLimit is how long the ticker may stall before /livez fails. Disks stall for seconds;
	// this is thirty turns even with a thousand peers.
	heartbeatLimit = 60 * time.Second
	// sourceState is the problem source for the state.
	sourceState = "state"
)

// ticker does the work that depends on time, as often as the tunnel reads its counters: every
// second, or every 2 s with a thousand peers. With a thousand peers it may notice a change 4.5 s
// late. Only its goroutine uses its fields.
type ticker struct {
	g     *Gateway
	watch *paths.Watch
	// tunnel is the tunnel's state in this turn.
	tunnel tunnel.Snapshot
	// judged is the position in the round over all peers' verdicts.
	judged int
	// notKept is why the last turn could not store the state outside the pod.
	notKept error
	// rest returns memory to the system; nil if the process is shared.
	rest *idle.Rest
}

func newTicker(g *Gateway) *ticker {
	c := &ticker{g: g, watch: g.paths.NewWatch()}
	if g.opts.Root != nil {
		c.rest = &idle.Rest{Memory: idle.Process{}}
	}
	return c
}

func (c *ticker) run(ctx context.Context) {
	if c.rest != nil {
		defer c.rest.Close()
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.turn(time.Now())
			t.Reset(c.g.plane.Engine.LookEvery())
		case <-c.g.services.Due():
			c.g.services.KeepPorts()
		case <-ctx.Done():
			return
		}
	}
}

func (c *ticker) turn(now time.Time) {
	g := c.g
	g.beat.Beat()
	g.plane.Engine.Read(&c.tunnel)
	s := c.tunnel
	g.rates.observe(s.At, s.Peers)
	if c.rest != nil {
		c.rest.Turn(now, s.Bytes())
	}
	c.judge(now)
	c.watch.Look(now, s, g.flows.Carried())
	g.exchange.Tick(now)
	g.enrolment.Tick(now, s)
	g.peers.Maintain(now)
	g.undoUnconfirmed(now)
	c.showKept(now)
	g.services.KeepPorts()
	if g.clusters != nil {
		g.clusters.Tick(now)
	}
	g.tail.Settle(g.ctx, now)
}

// judgedOnceIn is how many turns a round over all peers' verdicts takes. Some verdicts change with
// time alone.
const judgedOnceIn = 60

// judge records the verdicts on the next few peers.
func (c *ticker) judge(now time.Time) {
	members := c.g.peers.Load().Members()
	for range (len(members) + judgedOnceIn - 1) / judgedOnceIn {
		c.judged++
		c.g.judged(members[c.judged%len(members)], now)
	}
}

// showKept shows as a check of this gateway that the state cannot be stored outside the pod.
func (c *ticker) showKept(now time.Time) {
	err, was := c.g.store.Kept(), c.notKept
	c.notKept = err
	switch {
	case err == nil && was != nil:
		c.g.SetProblems(sourceState, nil)
	case err != nil && was == nil:
		p := check.OwnProblem{Name: "state", Code: catalogue.StateNotKept, Since: now}
		var refused interface{ Params() catalogue.Params } // by a cluster
		if errors.As(err, &refused) {
			p.Params = refused.Params()
		}
		p.Params.Detail = err.Error()
		c.g.SetProblems(sourceState, []check.OwnProblem{p})
	}
}
