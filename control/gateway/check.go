package gateway

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/verdict"
)

// Check runs the checks of one peer, or of this gateway and all its peers, and returns their
// results. It takes at most 10 s, plus the throughput measurement if one is requested.
func (g *Gateway) Check(ctx context.Context, r api.CheckRequest) (api.CheckReport, error) {
	if r.Peer != "" {
		if _, err := g.peers.Member(r.Peer); err != nil {
			return api.CheckReport{}, err
		}
	}
	if r.Throughput && r.Peer == "" {
		return api.CheckReport{}, admin.Usage("check --throughput: of which peer?", "postern check PEER --throughput")
	}
	ctx, cancel := g.whileRunning(ctx)
	defer cancel()
	report, err := g.checkReport(ctx, r.Peer, true)
	if err == nil && r.Throughput {
		g.addThroughput(ctx, r.Peer, &report)
	}
	return report, err
}

// Checks returns the latest results.
func (g *Gateway) Checks(ctx context.Context) (api.CheckReport, error) {
	return g.checkReport(ctx, "", false)
}

// checkReport joins the local findings with what peers report, and renders them.
func (g *Gateway) checkReport(ctx context.Context, name string, fresh bool) (api.CheckReport, error) {
	own, peers, err := g.checks.Find(ctx, name, fresh)
	if err != nil {
		return api.CheckReport{}, err
	}
	r := g.peers.Load()
	for i, p := range peers {
		if m := r.ByName(p.Name); m != nil && !m.Stock {
			peers[i].Inbound = g.exchange.Inbound(m)
		}
	}
	return verdict.Report(g.peers.Config().Name, time.Now(), own, peers, name != ""), nil
}

// Log returns the records of the recent log after the given one; 0 returns all that are kept.
func (g *Gateway) Log(_ context.Context, after uint64) (api.Log, error) {
	return api.Log{Kind: "Log", Records: append([]api.LogRecord{}, g.tail.After(after)...), Alarms: g.Alarms()}, nil
}

// Alarms returns the coded warnings since the start, one for each subject.
func (g *Gateway) Alarms() []api.Alarm { return g.tail.Alarms() }
