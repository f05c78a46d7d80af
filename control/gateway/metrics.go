package gateway

import (
	"context"
	"errors"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/metrics"
)

// serveMetrics listens where the configuration says, if it does.
func (g *Gateway) serveMetrics(ctx context.Context, cfg *config.Resolved) error {
	if cfg.HTTPAddress == "" {
		return nil
	}
	registry, err := g.Metrics()
	if err != nil {
		return err
	}
	g.metrics, err = metrics.Serve(ctx, metrics.ServerOptions{
		Address: cfg.HTTPAddress, Gatherer: registry, Live: g.beat.Check, Ready: g.ready, Logger: g.log,
	})
	return err
}

// moveMetrics serves on another address. The old one is closed first: the new one may
// differ in nothing but the interface.
func (g *Gateway) moveMetrics(ctx context.Context, cfg *config.Resolved) error {
	var err error
	if g.metrics != nil {
		err = g.metrics.Shutdown(ctx)
		g.metrics = nil
	}
	return errors.Join(err, g.serveMetrics(ctx, cfg))
}

// ready holds once the gateway listens; peers have no part in it.
func (g *Gateway) ready() error {
	if g.plane.bind.Port() == 0 {
		return errors.New("the UDP socket is closed")
	}
	return nil
}

// Metrics is a registry with this gateway's metrics.
func (g *Gateway) Metrics() (*prometheus.Registry, error) {
	build := metrics.Build{Version: g.opts.Version, GoVersion: runtime.Version()}
	return metrics.NewRegistry(metrics.NewCollector(build, g.metricsSnapshot))
}

func (g *Gateway) metricsSnapshot() metrics.Snapshot {
	status, _ := g.Status(g.ctx) // never fails
	stun := g.agent.Load().Snapshot().Transactions
	c := metrics.Counters{
		STUNRequests:       map[string]uint64{"success": stun.Success, "error": stun.Error + stun.Unsent, "timeout": stun.Timeout},
		AuthDecisions:      g.auth.decisions(),
		TicketAlarms:       g.book.Alarms(),
		NetstackDropped:    g.plane.stack.Stats().Dropped,
		UnderlayDropped:    g.plane.bind.Counters().Dropped,
		Reloads:            g.running.Load().reloads,
		OpenConnections:    g.flows.Count(),
		Connections:        map[string]uint64{},
		RefusedConnections: map[metrics.Refusal]uint64{},
	}
	for direction, n := range map[string]forward.Counters{
		forward.DirectionInbound: g.inbound.Counters(), forward.DirectionOutbound: g.outbound.Counters(),
	} {
		c.Connections[direction] = n.Accepted
		for reason, count := range n.Refused {
			c.RefusedConnections[metrics.Refusal{Direction: direction, Reason: string(reason)}] = count
		}
	}
	return metrics.Snapshot{Status: status, Counters: c}
}
