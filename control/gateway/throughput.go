package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
)

// checkThroughput is the name of the check that runs only on request.
const checkThroughput = "throughput"

// addThroughput measures the throughput of the path to a peer and appends it to the report's
// checks.
func (g *Gateway) addThroughput(ctx context.Context, name string, r *api.CheckReport) {
	c := g.throughput(ctx, name, r.Checks)
	r.Checks = append(r.Checks, c)
	if c.Verdict.Verdict == api.OK {
		r.Summary.OK++
	} else {
		r.Summary.Unknown++
	}
}

// throughput measures for a second in each direction, with a byte limit too (package auth). It does
// not judge how much is enough: a measured value is ok, a failed measurement is unknown.
func (g *Gateway) throughput(ctx context.Context, name string, before []api.Check) api.Check {
	c := api.Check{Name: checkThroughput, Peer: name, Target: api.ServiceGateway, Direction: api.DirectionOutbound, Stages: []api.CheckStage{}}
	unknown := func(cause, fix string) api.Check {
		c.Verdict = api.Verdict{Verdict: api.Unknown, Cause: cause, Steps: api.StepsOf(nil, fix, ""), Fix: fix}
		return c
	}
	m, err := g.peers.Member(name)
	switch {
	case err != nil:
		return unknown("the peer was removed meanwhile", "")
	case m.Stock:
		return unknown(name+" is a plain WireGuard peer, which does not measure", "use a tool of your own, iperf3 for example")
	case slices.ContainsFunc(before, func(b api.Check) bool {
		return b.Peer == name && b.Name == api.ServiceGateway && b.Direction == api.DirectionOutbound && b.Verdict.Verdict == api.Error
	}):
		c.DependsOn = api.ServiceGateway
		return unknown("the tunnel carries nothing", "")
	}
	if h, ok := g.exchange.Hello(m.Key); ok && !h.Can(auth.CapabilityThroughput) {
		return unknown(fmt.Sprintf("the gateway of %s (version %s) does not measure yet", name, h.Software), "update it")
	}
	began := time.Now()
	to, from, err := auth.NewClient(m.Address(), g.plane.Stack.DialContext).Throughput(ctx)
	var refused *auth.Error
	switch {
	case errors.Is(err, auth.ErrRateLimited) && errors.As(err, &refused):
		return unknown(fmt.Sprintf("%s measures once in 10 s, and for one peer at a time", name), fmt.Sprintf("try again in %s", refused.RetryAfter))
	case err != nil:
		return unknown("it could not be measured: "+err.Error(), "run `postern check "+name+" --throughput` again")
	}
	now := time.Now().UTC()
	c.Verdict = api.Verdict{Verdict: api.OK, CheckedAt: &now, Via: "in-band",
		Cause: fmt.Sprintf("%s to %s, %s from it", shownRate(to), name, shownRate(from))}
	c.Stages = append(c.Stages, loadStage("to", to), loadStage("from", from))
	g.log.Info("throughput measured", "peer", name, "to", shownRate(to), "from", shownRate(from), "seconds", time.Since(began).Seconds())
	return c
}

func loadStage(way string, l auth.Load) api.CheckStage {
	return api.CheckStage{Stage: way, Verdict: api.OK, Seconds: l.Took.Seconds(), Bytes: l.Bytes, Via: "in-band",
		Detail: fmt.Sprintf("%s: %.1f MB", shownRate(l), float64(l.Bytes)/1e6)}
}

// shownRate formats a load as a rate in the unit that networks are sold by.
func shownRate(l auth.Load) string {
	if b := l.BitsPerSecond(); b < 1e6 {
		return fmt.Sprintf("%.0f kbit/s", b/1e3)
	} else if b < 1e7 {
		return fmt.Sprintf("%.1f Mbit/s", b/1e6)
	}
	return fmt.Sprintf("%.0f Mbit/s", l.BitsPerSecond()/1e6)
}
