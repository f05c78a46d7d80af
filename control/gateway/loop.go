package gateway

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// tick is how often the loop turns: what a screen shows is at most so old.
	tick = time.Second
	// heartbeatLimit is how long the loop may stand still before /livez fails. Disks
	// stall for seconds; ten times the tick several times over is no stall.
	heartbeatLimit = 60 * time.Second
	// renewEvery is how often an identity that the API server refuses is replaced. If it
	// is the API server that does not know the authority, a new one will not help.
	renewEvery = 5 * time.Minute
)

// loop does what depends on time alone.
func (g *Gateway) loop() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		g.turn(time.Now())
		select {
		case <-t.C:
		case <-g.ctx.Done():
			return
		}
	}
}

func (g *Gateway) turn(now time.Time) {
	g.beat.Beat()
	s := g.plane.engine.Snapshot()
	old := g.tunnel.Swap(&s)
	counters := make(map[peer.PublicKey]peer.Stats, len(s.Peers))
	for k, p := range s.Peers {
		counters[k] = p.Stats
	}
	g.rates.observe(now, counters)
	r := g.roster.Load()
	for k, p := range s.Peers {
		m := r.byKey[k]
		if m == nil {
			continue
		}
		var before tunnel.PeerStats
		if old != nil {
			before = old.Peers[k]
		}
		g.observe(now, m, before, p)
	}
	for _, m := range r.members {
		g.replaceRejected(now, m)
	}
	g.expireTickets(now)
	g.rememberPorts()
}

// replaceRejected asks for another identity when the peer's API server refuses the one
// we have: its authority may have been replaced.
func (g *Gateway) replaceRejected(now time.Time, m *member) {
	code := check.Code(g.checks.Targets(m.name).APIServer.Code)
	rejected := code == check.IdentityRejected || code == check.APIServerUnauthorized
	if !rejected || now.Sub(g.renewed[m.key]) < renewEvery {
		return
	}
	g.renewed[m.key] = now
	g.keepers.renew(m.name)
}

// observe notices what changed about one peer since the last turn.
func (g *Gateway) observe(now time.Time, m *member, before, after tunnel.PeerStats) {
	if after.LastHandshake.After(before.LastHandshake) {
		if before.LastHandshake.IsZero() {
			g.log.Info("first handshake with peer", "peer", m.name, "endpoint", after.Endpoint.String())
			g.checks.Wake(m.name)
		}
		g.finishTickets(now, m.key)
	}
	was, _ := peerState(m, before, now)
	is, reason := peerState(m, after, now)
	if after.Proven && (after.Endpoint != before.Endpoint || !before.Proven) {
		g.journal.add(m.key, now, "direct", pathReason(m, before, after))
		if err := g.store.Proven(m.key, after.Endpoint, now); err != nil {
			g.log.Warn("a peer's endpoint cannot be remembered; after a restart it may have to dial us",
				"peer", m.name, "error", err)
		}
	}
	if is != was && was == api.StateConnected {
		g.journal.add(m.key, now, "lost", reason)
		g.log.Warn("peer is silent", "peer", m.name, "reason", reason, "endpoint", after.Endpoint.String())
		g.checks.Wake(m.name)
	}
	if is != was && is == api.StateConnected {
		g.log.Info("peer is connected", "peer", m.name, "endpoint", after.Endpoint.String())
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
	for _, c := range m.candidates {
		if c.Addr == a && c.Source != "" {
			return c.Source
		}
	}
	return api.SourcePeer
}

// expireTickets ends the tickets whose time is up. While there are any the book looks at
// the clock once a minute, so that one that is set back gives them no longer life.
func (g *Gateway) expireTickets(now time.Time) {
	next, any := g.book.NextDeadline()
	if !any || now.Before(next) && now.Sub(g.looked) < time.Minute {
		return
	}
	g.looked = now
	if err := g.change(func() error {
		_, err := g.book.Expire(now)
		return err
	}); err != nil {
		g.log.Warn("expired tickets cannot be ended", "error", err)
	}
}

// finishTickets ends the one-time tunnels of a peer that is there with its own key.
func (g *Gateway) finishTickets(now time.Time, k peer.PublicKey) {
	ended, err := g.book.Finish(now, k)
	if err != nil {
		g.log.Warn("a ticket's one-time tunnel cannot be ended", "error", err)
	}
	if len(ended) == 0 {
		return
	}
	if err := g.change(func() error { return nil }); err != nil {
		g.log.Warn("a ticket's one-time tunnel cannot be ended", "error", err)
	}
}
