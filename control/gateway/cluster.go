package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/tunnel/peer"
)

// SetPeers replaces the configured peers of a gateway in a cluster, where each has a Peer object.
// Unchanged peers are not disturbed. Names and keys must be unique. On an error the old peers stay
// in force.
func (g *Gateway) SetPeers(ctx context.Context, peers []config.Peer) error {
	return g.peers.Change(func(c *roster.Change) error {
		next := g.peers.Config().WithPeers(peers)
		changes := config.Diff(g.peers.Config(), next)
		if changes.IsEmpty() {
			return nil
		}
		if err := g.peers.CheckConfigured(g.peers.Config(), next); err != nil {
			return err
		}
		if err := c.Apply(next); err != nil {
			return err
		}
		g.audit.Record(ctx, audit.Reload, audit.Reason(summary(changes)))
		g.log.Info("applied the cluster's peers", "added", len(changes.Added),
			"removed", len(changes.Removed), "changed", len(changes.Changed))
		return nil
	})
}

// ClusterPeers returns the cluster's peers that were applied last. It may be called after Close.
func (g *Gateway) ClusterPeers() []config.Peer { return slices.Clone(g.peers.Config().Peers) }

// OnChange registers another function to be called whenever peers, their states, identities or
// verdicts may have changed. f must not block or call the gateway.
func (g *Gateway) OnChange(f func()) {
	for {
		old := g.onChange.Load()
		next := []func(){f}
		if old != nil {
			next = append(slices.Clone(*old), f)
		}
		if g.onChange.CompareAndSwap(old, &next) {
			return
		}
	}
}

// announceChange calls the functions registered with OnChange.
func (g *Gateway) announceChange() {
	if list := g.onChange.Load(); list != nil {
		for _, f := range *list {
			f()
		}
	}
}

// PublicKey returns the gateway's public key.
func (g *Gateway) PublicKey() peer.PublicKey { return g.publicKey }

// Port returns the UDP port that the gateway listens on.
func (g *Gateway) Port() uint16 { return g.plane.Bind.Port() }

// SetServiceEndpoints replaces the addresses that the cluster routes to this gateway. They become
// candidates with the source "service", which are announced to peers.
func (g *Gateway) SetServiceEndpoints(list []discovery.ServiceEndpoint) {
	g.peers.LearnAll(func(*roster.Roster) { g.paths.SetServiceEndpoints(list) })
}

// plain reports whether the gateway takes part in cluster services without running in a cluster.
func (g *Gateway) plain() bool { return g.opts.Clusterset == nil && g.opts.Config.Kubernetes == nil }

// sourceServices is the problem source for cluster services on a gateway outside a cluster.
const sourceServices = "services"

// showServices shows the problems of imported services until the gateway ends. A peer's exports
// that nobody imports are no problem.
func (g *Gateway) showServices() {
	for {
		state, changed := g.clusters.State()
		g.SetProblems(sourceServices, check.OfServices(slices.DeleteFunc(slices.Clone(state.Problems), func(p mcs.Problem) bool {
			return p.Code == catalogue.ServiceNotWanted
		})))
		select {
		case <-changed:
		case <-g.ctx.Done():
			return
		}
	}
}

// Services returns this gateway's cluster services; nil if it takes part in none.
func (g *Gateway) Services() mcs.Services {
	if g.clusters == nil {
		return nil
	}
	return g.clusters
}

// SetProblems replaces the problems that one source has found with this gateway. Each is shown as a
// failing own check.
func (g *Gateway) SetProblems(source string, list []check.OwnProblem) {
	if g.problems.set(source, list) {
		g.announceChange()
	}
}

// problems are this gateway's problems that package check did not find itself, by source. It is
// safe for concurrent use; the zero value is empty.
type problems struct {
	mu       sync.Mutex
	bySource map[string][]check.OwnProblem
}

// set replaces a source's problems and reports whether anything changed.
func (p *problems) set(source string, list []check.OwnProblem) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(list) == 0 && len(p.bySource[source]) == 0 {
		return false
	}
	if p.bySource == nil {
		p.bySource = map[string][]check.OwnProblem{}
	}
	p.bySource[source] = slices.Clone(list)
	return true
}

// all returns the problems of all sources, ordered by source name.
func (p *problems) all() []check.OwnProblem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []check.OwnProblem
	for _, source := range slices.Sorted(maps.Keys(p.bySource)) {
		out = append(out, p.bySource[source]...)
	}
	return out
}
