package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tunnel/peer"
)

// change does something that alters who the peers are, and applies the outcome. When do
// fails nothing is applied.
func (g *Gateway) change(do func() error) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	if g.changed.closed {
		return errStopping
	}
	if err := do(); err != nil {
		return err
	}
	return g.apply(g.changed.cfg)
}

// apply brings every part to what configuration, state directory and tickets say now. An
// error means that they contradict each other and that nothing was changed. It is called
// with changing held.
//
// The order matters. The tunnel comes first, since it alone can refuse; then policy and
// services, which new connections ask; then what is open and no longer allowed is ended;
// only then do removed peers leave the tunnel, or they would not hear of it; and only
// when a removed peer can have nothing left under way is it forgotten.
func (g *Gateway) apply(cfg *config.Resolved) error {
	next, err := makeRoster(g.publicKey, cfg.Peers, g.store.Peers(), g.book.OneTimePeers(time.Now()))
	if err != nil {
		return err
	}
	old := g.roster.Load()
	if err := g.freeIdentities(old, next); err != nil {
		if old.byName != nil {
			return err
		}
		g.log.Warn("a peer gets no identity: its name is another key's", "error", err) // and the gateway starts
	}
	gone := old.without(next)
	leaving, err := g.setTunnel(next, g.busy(gone))
	if err != nil {
		return fmt.Errorf("apply the peers: %w", err)
	}
	if err := g.inbound.SetServices(g.services(cfg)); err != nil {
		if _, undo := g.setTunnel(old, nil); undo != nil {
			g.log.Error("the peers cannot be put back", "error", undo)
		}
		return fmt.Errorf("apply the services: %w", err)
	}
	g.flows.SetPeerRate(cfg.ConnectionRate)
	g.roster.Store(next)
	g.auth.setPeers(next)
	g.noteConfigured(next) // once the keys before get no more identities, which would not be inherited
	g.changed.cfg = cfg
	g.track(next)

	for _, m := range gone {
		n := g.flows.ClosePeer(m.name)
		if a := m.address(); a.IsValid() && next.byAddr[a] == nil {
			g.plane.Stack.AbortPeer(a) // what is closed and not finished, too
		}
		switch {
		case !m.succeeded(next):
			g.log.Info("peer is gone", "peer", m.name, "connectionsReset", n)
		case m.fromFile:
			k := next.byName[m.name].key
			g.audit.Record(context.Background(), audit.Rotate, audit.Peer(m.name), audit.PublicKey(k), audit.Reason("configured"))
			g.log.Warn("a configured peer has another key; certificates of the one before are valid until they expire", "peer", m.name,
				"publicKey", k.String(), "fingerprint", peer.Fingerprint(k), "before", peer.Fingerprint(m.key), "connectionsReset", n)
		}
	}
	if n := g.inbound.Reauthorize(); n > 0 {
		g.log.Info("connections that are no longer allowed were reset", "connections", n)
	}
	if leaving {
		time.Sleep(resetFlushDelay)
		if _, err := g.setTunnel(next, nil); err != nil { // it was part of what was accepted
			g.log.Error("removed peers cannot be taken out of the tunnel; they are refused all the same", "error", err)
		}
	}
	g.paths.setPeers(next)
	g.outbound.SetLocals(g.locals(next, cfg))
	g.portsSoon()
	g.checkPeers(next, gone)
	g.keepers.setPeers(next)
	for _, m := range gone {
		g.forget(m, next)
	}
	g.reports.changed()
	return nil
}

// resetFlushDelay is how long resets may take to leave through the tunnel before it is taken
// away: they are queued, encrypted and sent by others, within a millisecond or two.
const resetFlushDelay = 100 * time.Millisecond

// busy are those of the members that have connections open.
func (g *Gateway) busy(members []*member) []*member {
	return slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return len(g.flows.List(m.name)) == 0 })
}

// setTunnel makes the roster's peers be those of the tunnel, and those that leave so long
// as there is something to tell them; leaving is false when they are in the way of the
// others.
func (g *Gateway) setTunnel(r *roster, leave []*member) (leaving bool, err error) {
	peers := r.peers(g.provenEndpoints)
	if len(leave) > 0 {
		all := slices.Clone(peers)
		for _, m := range leave {
			all = append(all, m.tunnel(nowhere))
		}
		if g.plane.Engine.SetPeers(all) == nil {
			return true, nil
		}
	}
	return false, g.plane.Engine.SetPeers(peers)
}

// checkPeers has the peers checked. The verdicts on a peer that is gone are not those on
// another of its name.
func (g *Gateway) checkPeers(next *roster, gone []*member) {
	if len(gone) > 0 {
		g.checks.SetPeers(slices.DeleteFunc(next.names(), func(name string) bool {
			return slices.ContainsFunc(gone, func(m *member) bool { return m.name == name })
		}))
	}
	g.checks.SetPeers(next.names())
}

// forget drops what was learned of a removed peer, and ends issuing to it. Its key may
// come back by another name, and then what was learned by key stays.
func (g *Gateway) forget(m *member, next *roster) {
	g.auth.revoke(m, m.succeeded(next))
	g.hellos.drop(m.key)
	g.learning.drop(m.key)
	if next.byName[m.name] == nil {
		g.following.drop(m.name)
	}
	if next.byKey[m.key] != nil {
		return
	}
	g.journal.drop(m.key)
	g.paths.forget(m.key)
	g.reports.forget(m.key)
	g.recent.forget(m.key)
	name := m.name
	if m.succeeded(next) {
		name = "" // it has another key, and the ports that are its own
	}
	if err := g.store.Forget(name, m.key); err != nil {
		g.log.Warn("what was learned of a removed peer cannot be forgotten", "peer", m.name, "error", err)
	}
}

// learn runs f unless the peer with the key was removed meanwhile: what is remembered of
// a peer after it was forgotten would stay for ever.
func (g *Gateway) learn(k peer.PublicKey, f func(*member)) {
	g.changing.Lock()
	defer g.changing.Unlock()
	if m := g.roster.Load().byKey[k]; m != nil && !g.changed.closed {
		f(m)
	}
}

// learnAll is learn for many peers: f keeps to those of the roster. It is not run once the
// gateway closes.
func (g *Gateway) learnAll(f func(*roster)) {
	g.changing.Lock()
	defer g.changing.Unlock()
	if !g.changed.closed {
		f(g.roster.Load())
	}
}

// track notes since when each peer is tried, and publishes what status shows.
func (g *Gateway) track(r *roster) {
	since := make(map[peer.PublicKey]time.Time, len(r.members))
	for _, m := range r.members {
		if at, ok := g.changed.since[m.key]; ok && !m.pending {
			since[m.key] = at
		} else {
			since[m.key] = time.Now()
		}
	}
	g.changed.since = since
	g.publish()
}

func (g *Gateway) publish() {
	c := &g.changed
	g.running.Store(&running{cfg: c.cfg, since: c.since, reloads: maps.Clone(c.reloads)})
	g.announceChange()
}

// nowhere is where a peer is tried that leaves.
func nowhere(peer.PublicKey) []netip.AddrPort { return nil }

// provenEndpoints are where the peer was heard from in this run or the last.
func (g *Gateway) provenEndpoints(k peer.PublicKey) []netip.AddrPort {
	return g.store.Observed(k).Endpoints
}
