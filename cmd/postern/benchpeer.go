package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

const (
	// peerPings is the number of pings in each round, one after the other.
	peerPings = 20
	// peerPause is the pause between them.
	peerPause = 50 * time.Millisecond
	// peerLoadPause is the other gateway's minimum pause between two throughput measurements,
	// plus a margin.
	peerLoadPause = 10500 * time.Millisecond
	// peerLoadBytes bounds one of them, in both directions together (control/auth).
	peerLoadBytes = 64 << 20
	// throughputCheck is the name of the check that measures.
	throughputCheck = "throughput"
	// peerRuns is the default number of rounds.
	peerRuns = 3
)

// peering measures one peering of a running gateway.
type peering struct {
	app  *app
	name string
	// loaded is when throughput was last measured.
	loaded time.Time
}

// notWithPeer are the flags of `bench run` that do not apply to a peering, with the reasons.
var notWithPeer = []struct{ flag, why string }{
	{"scenario", nothingStarted}, {"subject", nothingStarted}, {"cpus", nothingStarted}, {"memory", nothingStarted},
	{"duration", roundIsFixed}, {"warmup", roundIsFixed},
}

const (
	nothingStarted = "--peer measures a running peering and starts nothing"
	roundIsFixed   = "with --peer a round's work is fixed: echoes, and a stream of at most a second each way"
)

// forPeer adapts the flags to a measurement of a peering; given reports whether the user set a
// flag.
func (f *benchFlags) forPeer(given func(flag string) bool) error {
	for _, n := range notWithPeer {
		if given(n.flag) {
			return usagef("leave out --"+n.flag+", or --peer", "--%s: %s", n.flag, n.why)
		}
	}
	if !given("runs") {
		f.runs = peerRuns
	}
	return nil
}

// benchPeer announces the measurement, performs it, and writes the report.
func (a *app) benchPeer(ctx context.Context, f benchFlags, write reportWriter) error {
	s, err := a.client().Status(ctx)
	if err != nil {
		return err
	}
	found, err := findPeer(s, f.peer)
	if err != nil {
		return err
	}
	p := &found
	if p.State != api.StateConnected {
		return failedf("postern status "+f.peer+" says why", "bench: %s is %s, not connected", f.peer, p.State)
	}
	m := &peering{app: a, name: f.peer}
	scenarios := peerScenarios(p)
	m.announce(f.runs, scenarios, p)
	runner := bench.Runner{
		Scenarios: scenarios,
		Subjects: []bench.Subject{{
			Name: f.peer, About: "the peering with " + f.peer + ", " + p.Path.Kind + " path by " + p.Path.Remote,
			Run: m.run,
		}},
		// There is no warm-up, and a round ends when its work is done.
		Options: bench.Options{Runs: f.runs, Duration: peerPings * peerPause, Progress: a.benchProgress},
	}
	report, err := runner.Run(ctx)
	if err != nil {
		return err
	}
	if err := write(report, a.stdout); err != nil {
		return err
	}
	return benchFailure(report)
}

// peerScenarios returns the scenarios that can be measured with this peer.
func peerScenarios(p *api.PeerStatus) []bench.Scenario {
	can := []string{bench.PeerOverlay, bench.PeerThroughput}
	for load, service := range map[string]string{bench.PeerAuth: api.ServiceAuth, bench.PeerAPIServer: api.ServiceAPIServer} {
		if slices.Contains(p.Offers, service) {
			can = append(can, load)
		}
	}
	var out []bench.Scenario
	for _, s := range bench.PeerScenarios() {
		if slices.Contains(can, s.Spec.Load) {
			s.Subjects = []string{p.Name}
			out = append(out, s)
		}
	}
	return out
}

// announce prints what will be done, for how long, and how much is sent at most.
func (m *peering) announce(runs int, scenarios []bench.Scenario, p *api.PeerStatus) {
	took := time.Duration(runs)*time.Duration(len(scenarios)-1)*peerPings*peerPause + time.Duration(runs-1)*peerLoadPause + 2*time.Second
	fmt.Fprintf(m.app.stderr, "Measuring %s (%s path by %s) for about %s. Rounds: %d, in each %d echoes at each of %d layers "+
		"and a stream of at most a second and 32 MiB each way, so at most %d MiB in all. The peer allows one such stream every 10 s. Ctrl+C ends it.\n",
		tui.Printable(m.name), tui.Printable(p.Path.Kind), tui.Printable(p.Path.Remote), took.Round(time.Second), runs, peerPings, len(scenarios)-1, runs*peerLoadBytes>>20)
}

// run makes one round of a scenario.
func (m *peering) run(ctx context.Context, spec load.Spec) (load.Result, error) {
	if spec.Load == bench.PeerThroughput {
		return m.throughput(ctx)
	}
	return m.echoes(ctx, map[string]string{
		bench.PeerOverlay: layerOverlay, bench.PeerAuth: api.ServiceAuth, bench.PeerAPIServer: api.ServiceAPIServer,
	}[spec.Load])
}

// echoes pings at a layer.
func (m *peering) echoes(ctx context.Context, layer string) (load.Result, error) {
	tick := time.NewTicker(peerPause)
	defer tick.Stop()
	began := time.Now()
	var took []float64
	failed := errors.New("no answer")
	for seq := 1; seq <= peerPings; seq++ {
		reply, err := m.app.client().Ping(ctx, m.name, api.PingRequest{Layer: layer, Seq: seq})
		switch {
		case err != nil:
			return load.Result{}, err
		case reply.Error != "":
			failed = errors.New(reply.Error)
		default:
			took = append(took, reply.RTTSeconds)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return load.Result{}, context.Cause(ctx)
		}
	}
	if len(took) == 0 {
		return load.Result{}, failed
	}
	s := bench.Summarize(took)
	return load.Result{Seconds: time.Since(began).Seconds(), Values: map[string]float64{
		load.UnitMedian: s.Median, bench.UnitLeast: s.Min, bench.UnitGreatest: s.Max, bench.UnitUnanswered: 1 - float64(len(took))/peerPings,
	}}, nil
}

// throughput makes the gateways measure the path's throughput.
func (m *peering) throughput(ctx context.Context) (load.Result, error) {
	pause := time.NewTimer(time.Until(m.loaded.Add(peerLoadPause))) // at once the first time
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return load.Result{}, context.Cause(ctx)
	}
	defer func() { m.loaded = time.Now() }()
	report, err := m.app.client().Check(ctx, api.CheckRequest{Peer: m.name, Throughput: true})
	if err != nil {
		return load.Result{}, err
	}
	i := slices.IndexFunc(report.Checks, func(c api.Check) bool { return c.Peer == m.name && c.Name == throughputCheck })
	if i < 0 {
		return load.Result{}, errors.New("the gateway does not measure throughput: it runs an older version")
	}
	c := report.Checks[i]
	if c.Verdict.Verdict != api.OK {
		return load.Result{}, errors.New(c.Cause)
	}
	r := load.Result{Values: map[string]float64{}}
	for _, way := range c.Stages {
		unit := map[string]string{"to": bench.UnitTo, "from": bench.UnitFrom}[way.Stage]
		if unit == "" || way.Seconds <= 0 || way.Bytes <= 0 {
			continue
		}
		r.Bytes, r.Seconds = r.Bytes+uint64(way.Bytes), r.Seconds+way.Seconds
		r.Values[unit] = float64(way.Bytes) * 8 / way.Seconds
	}
	if r.Bytes == 0 {
		return load.Result{}, errors.New("the gateway reports no figures: it runs an older version")
	}
	return r, nil
}
