package gateway

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/verdict"
)

// Check runs the checks of one peer, or of this gateway and all its peers, and gives what
// they found. It takes at most 10 s, unless throughput is to be measured too.
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

// Checks gives what the checks found last.
func (g *Gateway) Checks(ctx context.Context) (api.CheckReport, error) {
	return g.checkReport(ctx, "", false)
}

// checkReport joins what was found here with what peers report, and puts it into words.
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

// Log gives the records of the recent log after one; 0 gives all that are kept.
func (g *Gateway) Log(_ context.Context, after uint64) (api.Log, error) {
	return api.Log{Kind: "Log", Records: append([]api.LogRecord{}, g.tail.After(after)...), Alarms: g.Alarms()}, nil
}

// Alarms are the warnings with a code since the start, once for each subject.
func (g *Gateway) Alarms() []api.Alarm { return g.tail.Alarms() }
