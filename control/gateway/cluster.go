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

// SetPeers replaces the configured peers of a gateway in a cluster, which has a Peer object
// of each. What did not change is not disturbed. Names and keys must differ from each
// other's. On an error the old peers are in force as before.
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
		g.log.Info("the cluster's peers are applied", "added", len(changes.Added),
			"removed", len(changes.Removed), "changed", len(changes.Changed))
		return nil
	})
}

// ClusterPeers are the cluster's peers that were applied last. It may be called when the
// gateway is closed.
func (g *Gateway) ClusterPeers() []config.Peer { return slices.Clone(g.peers.Config().Peers) }

// OnChange has f called, besides those given before, whenever peers, their states, identities
// or verdicts may have changed. f must not block, and not call the gateway.
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

// announceChange tells whoever asked for it.
func (g *Gateway) announceChange() {
	if list := g.onChange.Load(); list != nil {
		for _, f := range *list {
			f()
		}
	}
}

// PublicKey is the gateway's.
func (g *Gateway) PublicKey() peer.PublicKey { return g.publicKey }

// Port is the UDP port that the gateway listens on.
func (g *Gateway) Port() uint16 { return g.plane.Bind.Port() }

// SetServiceEndpoints replaces the addresses that the cluster leads to this gateway. They
// are candidates with the source "service", and peers are told.
func (g *Gateway) SetServiceEndpoints(list []discovery.ServiceEndpoint) {
	g.peers.LearnAll(func(*roster.Roster) { g.paths.SetServiceEndpoints(list) })
}

// plain reports whether the gateway takes part in services of clusters without a cluster.
func (g *Gateway) plain() bool { return g.opts.Clusterset == nil && g.opts.Config.Kubernetes == nil }

// sourceServices is the source of problems with services of clusters, where there is no cluster.
const sourceServices = "services"

// showServices shows what is wrong with the services that are imported, until the gateway ends. What
// peers export and nobody asked for is no fault.
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

// Services are those of clusters, as this one takes part in them; nil if it does not.
func (g *Gateway) Services() mcs.Services {
	if g.clusters == nil {
		return nil
	}
	return g.clusters
}

// SetProblems replaces what one source has found to be wrong with this gateway. Each is
// shown as an own check that fails.
func (g *Gateway) SetProblems(source string, list []check.OwnProblem) {
	if g.problems.set(source, list) {
		g.announceChange()
	}
}

// problems are what others than package check found of this gateway, by source. It is safe
// for concurrent use; the zero value has none.
type problems struct {
	mu       sync.Mutex
	bySource map[string][]check.OwnProblem
}

// set reports whether anything changed.
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

// all are those of every source, in the order of the sources' names.
func (p *problems) all() []check.OwnProblem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []check.OwnProblem
	for _, source := range slices.Sorted(maps.Keys(p.bySource)) {
		out = append(out, p.bySource[source]...)
	}
	return out
}
