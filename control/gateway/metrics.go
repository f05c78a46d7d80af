package gateway

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/metrics"
	"github.com/postern-dev/postern/discovery/path"
)

// metricsGrace is how long scrapes may go on when their listener is to close.
const metricsGrace = 2 * time.Second

// serveMetrics listens where the configuration says; it gives nil where it does not.
func (g *Gateway) serveMetrics(ctx context.Context, cfg *config.Resolved) (*metrics.Server, error) {
	if cfg.HTTPAddress == "" {
		return nil, nil
	}
	registry, err := g.Metrics()
	if err != nil {
		return nil, err
	}
	server, err := metrics.Serve(ctx, metrics.ServerOptions{
		Address: cfg.HTTPAddress, Gatherer: registry, Live: g.beat.Check, Ready: g.ready, Logger: g.log,
	})
	if err != nil {
		return nil, cfg.Blame("spec.http.address", err)
	}
	return server, nil
}

func (g *Gateway) shutMetrics(s *metrics.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsGrace)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		g.log.Debug("scrapes were cut off", "error", err)
	}
}

// metricsMove is a change of the metrics' address under way: both listeners are open,
// or, where they would be in each other's way, the old one is closed already.
type metricsMove struct {
	g        *Gateway
	old, now *metrics.Server // may be nil, and are one when nothing moves
}

// moveMetrics opens the listener that the configuration wants. It is for one who may change
// the peers.
func (g *Gateway) moveMetrics(ctx context.Context, next *config.Resolved) (metricsMove, error) {
	old := g.metrics
	if g.peers.Config().HTTPAddress == next.HTTPAddress {
		return metricsMove{g, old, old}, nil
	}
	now, err := g.serveMetrics(ctx, next)
	if err == nil {
		return metricsMove{g, old, now}, nil
	}
	if old == nil || !errors.Is(err, syscall.EADDRINUSE) {
		return metricsMove{}, err
	}
	// It may be our own: the new address may differ in nothing but the interface.
	g.shutMetrics(old)
	g.metrics = nil
	if now, err = g.serveMetrics(ctx, next); err != nil {
		metricsMove{g: g}.undo(ctx)
		return metricsMove{}, err
	}
	return metricsMove{g, nil, now}, nil
}

// commit closes the old listener.
func (m metricsMove) commit() {
	m.g.metrics = m.now
	if m.old != nil && m.old != m.now {
		m.g.shutMetrics(m.old)
	}
}

// undo closes the new listener, and opens the old one if that was closed for it.
func (m metricsMove) undo(ctx context.Context) {
	if m.now != nil && m.now != m.old {
		m.g.shutMetrics(m.now)
	}
	if m.g.metrics != nil {
		return
	}
	server, err := m.g.serveMetrics(ctx, m.g.peers.Config())
	if err != nil {
		m.g.log.Error("metrics are not served any more", "error", err)
		return
	}
	m.g.metrics = server
}

// Metrics is a registry with this gateway's metrics.
func (g *Gateway) Metrics() (*prometheus.Registry, error) {
	build := metrics.Build{Version: g.opts.Version, GoVersion: runtime.Version()}
	return metrics.NewRegistry(metrics.NewCollector(build, g.metricsSnapshot))
}

func (g *Gateway) metricsSnapshot() metrics.Snapshot {
	status, _ := g.Status(g.ctx) // never fails
	stun := g.paths.Agent().Snapshot().Transactions
	c := metrics.Counters{
		RoundTrips:         map[string]metrics.Histogram{},
		STUNRequests:       map[string]uint64{"success": stun.Success, "error": stun.Error + stun.Unsent, "timeout": stun.Timeout},
		AuthDecisions:      g.auth.Decisions(),
		TicketAlarms:       g.peers.Book().Alarms(),
		Unrecorded:         g.tail.Unrecorded(),
		NetstackDropped:    g.plane.Stack.Stats().Dropped,
		UnderlayDropped:    g.plane.Bind.Counters().Dropped,
		Reloads:            map[string]uint64{metrics.ReloadSuccess: g.reloads.success.Load(), metrics.ReloadError: g.reloads.failed.Load()},
		OpenConnections:    g.flows.Count(),
		Connections:        map[string]uint64{},
		RefusedConnections: map[metrics.Refusal]uint64{},
		OpenUDPFlows:       g.flows.UDPCount(),
		UDPFlows:           map[string]uint64{},
		RefusedUDPFlows:    map[metrics.Refusal]uint64{},
		DroppedDatagrams:   map[string]uint64{},
	}
	c.NetstackDropped["no-session"] = g.plane.Engine.DroppedUnsent()
	in := g.peers.Inbound()
	addCounters(c.Connections, c.RefusedConnections, in.Counters(), g.services.Counters())
	addCounters(c.UDPFlows, c.RefusedUDPFlows, in.UDPCounters(), g.services.UDPCounters())
	if g.clusters != nil {
		addCounters(c.Connections, c.RefusedConnections, forward.Counters{}, g.clusters.Counters())
		addCounters(c.UDPFlows, c.RefusedUDPFlows, forward.Counters{}, g.clusters.UDPCounters())
	}
	g.countServices(&c)
	if x := g.opts.Clusterset; x != nil && x.DNSQueries != nil {
		c.DNSQueries = x.DNSQueries()
	}
	for peer, trips := range g.paths.RoundTrips() {
		h := metrics.Histogram{Count: trips.Count, Sum: trips.Sum.Seconds(), Within: map[float64]uint64{}}
		for i, bound := range path.TripBounds {
			h.Within[bound.Seconds()] = trips.Within[i]
		}
		c.RoundTrips[peer] = h
	}
	for why, n := range g.flows.Dropped() {
		c.DroppedDatagrams[string(why)] = n
	}
	return metrics.Snapshot{Status: status, Counters: c}
}

// countServices adds what became of connections to services of clusters.
func (g *Gateway) countServices(c *metrics.Counters) {
	if g.clusters == nil {
		return
	}
	c.ReadyBackends = map[string]int{}
	ready := g.clusters.Ready()
	for _, u := range g.flows.Used() {
		s := metrics.Service{Direction: u.Direction, Peer: u.Peer, Name: u.Service, Open: u.Open,
			Connections: u.Connections, RxBytes: u.RxBytes, TxBytes: u.TxBytes, Failures: map[string]uint64{}}
		for r, n := range u.Failures {
			s.Failures[string(r)] = n
		}
		c.Services = append(c.Services, s)
		if n, exported := ready[u.Service]; exported && u.Direction == forward.DirectionInbound {
			c.ReadyBackends[u.Service] = n
		}
	}
}

// addCounters adds what happened in either direction to what is there.
func addCounters(carried map[string]uint64, refused map[metrics.Refusal]uint64, in, out forward.Counters) {
	for direction, n := range map[string]forward.Counters{forward.DirectionInbound: in, forward.DirectionOutbound: out} {
		carried[direction] += n.Accepted
		for reason, count := range n.Refused {
			refused[metrics.Refusal{Direction: direction, Reason: string(reason)}] += count
		}
	}
}
