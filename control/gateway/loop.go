package gateway

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/tunnel"
)

const (
	// heartbeatLimit is how long the ticker may stand still before /livez fails. Disks
	// stall for seconds; this is thirty turns even of a thousand peers'.
	heartbeatLimit = 60 * time.Second
	// renewEvery is how often an identity is replaced before its time, because the API server
	// refuses it or the peer says that it has ended. If it is the API server that does not know
	// the authority, a new one will not help; and each is a write to the state.
	renewEvery = 5 * time.Minute
	// renewAtOnce is how often in a row a peer's word is followed first: when either side rotates
	// its key, or the account is recreated, several identities end within minutes.
	renewAtOnce = 4
	// reportsCatchUp is how long after it issued an identity a peer may go on to report that
	// there is none: it sees its cluster a moment late, and tells of changes every reportPace.
	reportsCatchUp = 3 * reportPace
	// rejectedAtOnce is how many peers a turn looks at for identities that are to be replaced:
	// of a thousand each is every 5 s, which is how often they report.
	rejectedAtOnce = 400
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
	// remembered is when what peers say of themselves was last stored.
	remembered time.Time
	// notKept is why the state was not kept outside of the pod at the last turn.
	notKept error
	// rejected counts the peers whose identities were looked at, around all of them.
	rejected int
	// rest gives memory back; nil where others live in the process.
	rest *rest
}

func newTicker(g *Gateway) *ticker {
	c := &ticker{g: g, watch: g.paths.NewWatch()}
	if g.opts.Root != nil {
		c.rest = &rest{memory: processMemory{}}
	}
	return c
}

func (c *ticker) run(ctx context.Context) {
	if c.rest != nil {
		defer c.rest.close()
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.turn(time.Now())
			t.Reset(c.g.plane.Engine.LookEvery())
		case <-c.g.portsDue:
			c.keepPorts()
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
		c.rest.turn(now, s.Bytes())
	}
	r := g.peers.Load()
	c.watch.Look(now, s, g.flows.Carried())
	for range min(len(r.Members()), rejectedAtOnce) {
		c.rejected = (c.rejected + 1) % len(r.Members())
		c.replaceRejected(now, r.Members()[c.rejected])
	}
	if now.Sub(c.remembered) >= roster.RememberEvery {
		c.remembered = now
		g.peers.LearnAll(func(r *roster.Roster) { g.rememberHellos(r.Members()) })
	}
	g.enrolment.Tick(now, s)
	g.peers.Maintain(now)
	c.showKept(now)
	c.keepPorts()
	g.tail.Settle(g.ctx, now)
}

// keepPorts keeps the ports that listeners found.
func (c *ticker) keepPorts() {
	c.g.peers.LearnAll(func(*roster.Roster) { c.g.rememberPorts(c.g.outbound.Locals()) })
}

// replaceRejected asks for another identity when the peer's API server refuses the one
// we have: its authority may have been replaced.
func (c *ticker) replaceRejected(now time.Time, m *roster.Member) {
	heard, _ := c.g.reports.last(m.Key)
	c.g.keepers.renewDue(now, m, heard)
	code := c.g.checks.Code(m.Name, api.ServiceAPIServer)
	if code == catalogue.IdentityRejected || code == catalogue.APIServerUnauthorized {
		c.g.keepers.renew(now, m)
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
