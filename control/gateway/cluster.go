package gateway

import (
	"context"
	"slices"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/config"
)

// SetPeers replaces the configured peers of a gateway in a cluster, which has a Peer object
// of each. What did not change is not disturbed. Names and keys must differ from each
// other's. On an error the old peers are in force as before.
func (g *Gateway) SetPeers(ctx context.Context, peers []config.Peer) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	if g.changed.closed {
		return errStopping
	}
	next := withPeers(g.changed.cfg, peers)
	changes := config.Diff(g.changed.cfg, next)
	if changes.IsEmpty() {
		return nil
	}
	if err := g.apply(next); err != nil {
		return err
	}
	g.audit.Record(ctx, audit.Reload, audit.Reason(summary(changes)))
	g.log.Info("the cluster's peers are applied", "added", len(changes.Added),
		"removed", len(changes.Removed), "changed", len(changes.Changed))
	return nil
}

// withPeers is the configuration with the cluster's peers in it, which no file has.
func withPeers(cfg *config.Resolved, peers []config.Peer) *config.Resolved {
	next := *cfg
	next.Peers = slices.Clone(peers)
	return &next
}

// OnChange has f called whenever peers, their states, identities or verdicts may have
// changed. f must not block, and not call the gateway. Only the last f given is called.
func (g *Gateway) OnChange(f func()) { g.onChange.Store(&f) }

// announceChange tells whoever asked for it.
func (g *Gateway) announceChange() {
	if f := g.onChange.Load(); f != nil {
		(*f)()
	}
}
