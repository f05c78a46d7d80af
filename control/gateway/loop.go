package gateway

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
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
	// bookEvery is how often the ticket book looks at the clock while tickets are open,
	// so that a clock that is set back gives them no longer life, and how often what
	// could not be stored is tried again.
	bookEvery = time.Minute
	// rejectedAtOnce is how many peers a turn looks at for identities that are to be replaced:
	// of a thousand each is every 5 s, which is how often they report.
	rejectedAtOnce = 400
	// lastAnswer is how long a ticket's tunnel outlives the ticket: the one who burned it
	// is still to be told so.
	lastAnswer = 2 * time.Second
	// sourceState is the source of problems of the state.
	sourceState = "state"
)

// ticker does what depends on time alone, as often as the tunnel reads its counters: each
// second, and of a thousand peers every two, of which it may then notice something 4.5 s late.
// Its fields are its goroutine's.
type ticker struct {
	g *Gateway
	// states and stats are those of the last turn.
	states map[peer.PublicKey]api.PeerState
	stats  map[peer.PublicKey]tunnel.PeerStats
	// carried are the bytes of a peer's open connections.
	carried map[peer.PublicKey]uint64
	// tunnel is the state of this turn, and flows what connections have carried.
	tunnel tunnel.Snapshot
	flows  map[string]forward.Carried
	// kept are the endpoints that are remembered for the next start, unkept those that
	// could not be and were complained of.
	kept, unkept map[peer.PublicKey]netip.AddrPort
	// keeping are those of this turn that are to be.
	keeping map[peer.PublicKey]netip.AddrPort
	// remembered is when what peers announced was last stored.
	remembered time.Time
	// looked is when the ticket book was last asked to look at the clock, and failed
	// whether it could not store what it saw.
	looked time.Time
	failed bool
	// stored is when it was last tried to store what commands could not.
	stored time.Time
	// notKept is why the state was not kept outside of the pod at the last turn.
	notKept error
	// rejected counts the peers whose identities were looked at, around all of them.
	rejected int
	// rest gives memory back; nil where others live in the process.
	rest *rest
	// outdated is since when the tunnel has other one-time peers than the book; zero
	// when it has the same.
	outdated time.Time
}

func newTicker(g *Gateway) *ticker {
	c := &ticker{
		g: g, states: map[peer.PublicKey]api.PeerState{}, stats: map[peer.PublicKey]tunnel.PeerStats{},
		kept: map[peer.PublicKey]netip.AddrPort{}, unkept: map[peer.PublicKey]netip.AddrPort{}, keeping: map[peer.PublicKey]netip.AddrPort{},
		carried: map[peer.PublicKey]uint64{},
	}
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
			t.Reset(c.g.plane.engine.LookEvery())
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
	g.plane.engine.Read(&c.tunnel)
	s := c.tunnel
	g.rates.observe(s.At, s.Peers)
	c.flows = g.flows.Carried()
	if c.rest != nil {
		c.rest.turn(now, s.Bytes())
	}
	r := g.roster.Load()
	for k := range c.stats {
		if r.byKey[k] == nil {
			delete(c.stats, k)
			delete(c.states, k)
			delete(c.kept, k)
			delete(c.unkept, k)
			delete(c.carried, k)
		}
	}
	for _, m := range r.members {
		if p, ok := s.Peers[m.key]; ok {
			c.observe(now, m, p)
		}
	}
	for range min(len(r.members), rejectedAtOnce) {
		c.rejected = (c.rejected + 1) % len(r.members)
		c.replaceRejected(now, r.members[c.rejected])
	}
	c.keep(now)
	if now.Sub(c.remembered) >= rememberEvery {
		c.remembered = now
		g.paths.remember()
		g.learnAll(func(r *roster) { g.rememberHellos(r.members) })
	}
	g.succeed(s)
	c.expireTickets(now)
	c.dropOneTime(now)
	c.storeAgain(now)
	c.showKept(now)
	c.keepPorts()
	g.tail.Settle(g.ctx, now)
}

// keepPorts keeps the ports that listeners found.
func (c *ticker) keepPorts() {
	c.g.changing.Lock()
	defer c.g.changing.Unlock()
	if !c.g.changed.closed {
		c.g.rememberPorts(c.g.outbound.Locals())
	}
}

// replaceRejected asks for another identity when the peer's API server refuses the one
// we have: its authority may have been replaced.
func (c *ticker) replaceRejected(now time.Time, m *member) {
	heard, _ := c.g.reports.last(m.key)
	c.g.keepers.renewDue(now, m, heard)
	code := c.g.checks.Finding(m.name, api.ServiceAPIServer).Fault()
	if code == catalogue.IdentityRejected || code == catalogue.APIServerUnauthorized {
		c.g.keepers.renew(now, m)
	}
}

// observe notices what changed about one peer since the last turn.
func (c *ticker) observe(now time.Time, m *member, after tunnel.PeerStats) {
	g, before := c.g, c.stats[m.key]
	c.stats[m.key] = after
	if after.LastHandshake.After(before.LastHandshake) {
		if before.LastHandshake.IsZero() {
			g.log.Info("first handshake with peer", "peer", m.name, "endpoint", after.Endpoint.String())
			g.checks.Wake(m.name)
		}
		if err := g.book.Finish(now, m.key); err != nil {
			g.log.Warn("a ticket that has served cannot be ended", "peer", m.name, "error", err)
		}
	}
	if m.stock && after.Proven && (after.Endpoint != before.Endpoint || !before.Proven) {
		g.journal.add(m.key, now, "direct", pathReason(m, before, after))
	}
	// What the gateway itself says to a peer, to check it above all, is no traffic: nobody waits
	// for it, and it comes so often that no path would ever be idle.
	flows := c.flows[m.name]
	if flows.Bytes != c.carried[m.key] || flows.Flows > 0 && unanswered(before, after) {
		g.paths.finder.Traffic(m.key)
	}
	c.carried[m.key] = flows.Bytes
	if c.kept[m.key] != after.Endpoint && g.lasting(m, after) && g.learning.may(m.key, now) {
		c.keeping[m.key] = after.Endpoint
	}
	c.follow(now, m, after)
}

// unanswered reports whether the tunnel only sent: what connections send again and again
// when their path is dead.
func unanswered(before, after tunnel.PeerStats) bool {
	return after.TxBytes > before.TxBytes && after.RxBytes == before.RxBytes
}

// lasting reports whether a peer was heard at an address of its own, which is worth
// remembering: one on a relay is gone with its allocation, and must not be taken for a
// direct way to the peer in the next run.
func (g *Gateway) lasting(m *member, p tunnel.PeerStats) bool {
	if !p.Proven || p.Path.Via != "" {
		return false
	}
	s, found := g.paths.finder.Snapshot(m.key)
	return !found || s.Kind == path.KindDirect && s.Selected == p.Path
}

// keep remembers where peers were heard, for the next start: all in one write, since it is
// of all peers. What cannot be stored is tried again each turn, but complained of once.
func (c *ticker) keep(now time.Time) {
	if len(c.keeping) == 0 {
		return
	}
	defer clear(c.keeping)
	var err error
	c.g.learnAll(func(r *roster) {
		maps.DeleteFunc(c.keeping, func(k peer.PublicKey, _ netip.AddrPort) bool { return r.byKey[k] == nil })
		err = c.g.store.AllProven(c.keeping, now)
	})
	for k, endpoint := range c.keeping {
		if err == nil {
			c.kept[k] = endpoint
			continue
		}
		if c.unkept[k] != endpoint {
			c.unkept[k] = endpoint
			c.g.log.Warn("a peer's endpoint cannot be remembered; after a restart it may have to dial us",
				"peer", c.g.nameOf(k), "error", err)
		}
	}
}

// follow notices that a peer came or went. Going is a matter of time alone: nothing
// about a peer changes when it has been silent for too long.
func (c *ticker) follow(now time.Time, m *member, p tunnel.PeerStats) {
	g, was := c.g, c.states[m.key]
	is, reason := api.StateConnected, ""
	if m.pending || !g.reached(m, p).connected(now) {
		is, reason = peerState(m, g.way(m, p), now)
	}
	c.states[m.key] = is
	if is != was {
		g.announceChange()
	}
	switch {
	case is == was:
	case is == api.StateConnected:
		g.log.Info("peer is connected", "peer", m.name, "endpoint", p.Endpoint.String())
		g.checks.Wake(m.name)
	case was == api.StateConnected:
		g.journal.add(m.key, now, "lost", reason)
		g.log.Warn("peer is silent", "peer", m.name, "reason", reason, "endpoint", p.Endpoint.String())
		g.checks.Wake(m.name)
	}
}

// pathReason says in words why the endpoint is what it is now.
func pathReason(m *member, before, after tunnel.PeerStats) string {
	source := sourceOf(m, after.Endpoint)
	if before.Proven {
		return "the peer answers from " + after.Endpoint.String() + " (" + source + ") now, before from " + before.Endpoint.String()
	}
	return "first authenticated answer came from " + after.Endpoint.String() + " (" + source + ")"
}

// sourceOf is where a peer's address is known from; peer-reflexive when nobody had
// announced it.
func sourceOf(m *member, a netip.AddrPort) string {
	for _, c := range m.known() {
		if c.Addr == a && c.Source != "" {
			return c.Source
		}
	}
	return api.SourcePeer
}

// expireTickets ends the tickets whose time is up.
func (c *ticker) expireTickets(now time.Time) {
	next, open := c.g.book.NextDeadline()
	open = open || c.g.book.Unstored()
	recently := now.Sub(c.looked) < bookEvery
	if !open || recently && (c.failed || now.Before(next)) {
		return
	}
	c.looked = now
	_, err := c.g.book.Expire(now)
	if err != nil {
		c.g.log.Warn("the ticket book cannot be stored; expired tickets are refused all the same", "error", err)
	}
	c.failed = err != nil
}

// storeAgain tries to store what was taken away from peers and could not be stored then.
func (c *ticker) storeAgain(now time.Time) {
	if now.Sub(c.stored) < bookEvery {
		return
	}
	c.stored = now
	if err := c.g.storeAgain(); err != nil {
		c.g.log.Warn("what was taken away from peers can still not be stored", "error", err)
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

// dropOneTime takes the tunnels of tickets down that have ended, whatever ended them. It
// leaves the one who did a moment to be told.
func (c *ticker) dropOneTime(now time.Time) {
	g := c.g
	if !g.roster.Load().hasOther(g.book.OneTimePeers(now)) {
		c.outdated = time.Time{}
		return
	}
	if c.outdated.IsZero() {
		c.outdated = now
	}
	if now.Sub(c.outdated) < lastAnswer {
		return
	}
	if err := g.change(func() error { return nil }); err != nil {
		g.log.Warn("the tunnel of an ended ticket cannot be taken down", "error", err)
	}
}
