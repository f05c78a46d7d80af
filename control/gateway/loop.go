package gateway

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/idle"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/tunnel"
)

const (
	// heartbeatLimit is how long the ticker may stand still before /livez fails. Disks
	// stall for seconds; this is thirty turns even of a thousand peers'.
	heartbeatLimit = 60 * time.Second
	// sourceState is the source of problems of the state.
	sourceState = "state"
)

// ticker does what depends on time alone, as often as the tunnel reads its counters: each
// second, and of a thousand peers every two, of which it may then notice something 4.5 s late.
// Its fields are its goroutine's.
type ticker struct {
	g     *Gateway
	watch *paths.Watch
	// tunnel is the state of this turn.
	tunnel tunnel.Snapshot
	// judged counts the peers whose verdicts were looked at, around all of them.
	judged int
	// notKept is why the state was not kept outside of the pod at the last turn.
	notKept error
	// rest gives memory back; nil where others live in the process.
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

// judgedOnceIn is how many turns it takes to look at the verdicts on all peers: some change with the
// time alone.
const judgedOnceIn = 60

// judge keeps the verdicts on some peers.
func (c *ticker) judge(now time.Time) {
	members := c.g.peers.Load().Members()
	for range (len(members) + judgedOnceIn - 1) / judgedOnceIn {
		c.judged++
		c.g.judged(members[c.judged%len(members)], now)
	}
}

// showKept has an own check say that the state cannot be kept outside of the pod.
func (c *ticker) showKept(now time.Time) {
	err, was := c.g.store.Kept(), c.notKept
	c.notKept = err
	switch {
	case err == nil && was != nil:
		c.g.SetProblems(sourceState, nil)
	case err != nil && was == nil:
		c.g.SetProblems(sourceState, []check.OwnProblem{{
			Name: "state", Code: catalogue.StateNotKept, Params: catalogue.Params{Detail: err.Error()}, Since: now,
		}})
	}
}
