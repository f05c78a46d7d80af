package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

const (
	// reportLimit bounds a report on demand: a verdict is wanted within 10 s of the command, which
	// has to start and to print as well.
	reportLimit = 9 * time.Second
	// nameInbound begins the names of what a peer reports.
	nameInbound = "inbound-"
	ownPrefix   = "own/"
)

// PeerResults are the last results of one peer's checks.
type PeerResults struct {
	Peer    string
	Results []Result
}

// Snapshot gives the last results of every peer, by name.
func (r *Runner) Snapshot() []PeerResults {
	var out []PeerResults
	for _, rep := range r.reports() {
		out = append(out, PeerResults{Peer: rep.Peer, Results: rep.Results})
	}
	return out
}

// reports are the last ones, by name.
func (r *Runner) reports() []Report {
	var out []Report
	for _, w := range r.watchedPeers() {
		out = append(out, w.report())
	}
	return out
}

func (r *Runner) watchedPeers() []*watched {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*watched
	for _, name := range slices.Sorted(maps.Keys(r.peers)) {
		out = append(out, r.peers[name])
	}
	return out
}

// Report gives the state of every check of one peer, or with an empty name of this gateway
// and all its peers. If it is to be fresh all are run first, at the same time and within
// 10 s; what is not ready by then is unknown. Whatever follows from another check that
// fails is unknown and names it, so that errors and warnings are what there is to fix.
func (r *Runner) Report(ctx context.Context, peer string, fresh bool) (api.CheckReport, error) {
	peers := r.watchedPeers()
	if peer != "" {
		peers = slices.DeleteFunc(peers, func(w *watched) bool { return w.name != peer })
		if len(peers) == 0 {
			return api.CheckReport{}, fmt.Errorf("check %s: %w", cleanText(peer), ErrNoPeer)
		}
	}
	reports := make([]Report, len(peers))
	for i, w := range peers {
		reports[i] = w.report()
	}
	if fresh {
		r.refresh(ctx, peers, reports)
		if err := context.Cause(ctx); err != nil {
			return api.CheckReport{}, fmt.Errorf("check: %w", err)
		}
	}
	now := time.Now().UTC()
	out := api.CheckReport{APIVersion: api.Version, Kind: "CheckReport", At: now}
	known := r.ownFacts()
	own := r.ownResults(known)
	if known != nil {
		out.Gateway = known.Name
	}
	var checks []api.Check
	for _, rep := range reports {
		if f, ok := r.opts.Facts(rep.Peer); ok {
			f.own = known
			checks = append(checks, peerChecks(f, rep, own)...)
		}
	}
	out.Checks = append(ownChecks(own, peer, checks), checks...)
	if out.Checks == nil {
		out.Checks = []api.Check{}
	}
	out.Summary = summary(out.Checks)
	return out, nil
}

// refresh runs the checks of the peers and of this gateway, and puts the results into the
// reports.
func (r *Runner) refresh(ctx context.Context, peers []*watched, reports []Report) {
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { r.checkOwn(ctx, true) })
	for i, w := range peers {
		wg.Go(func() {
			rep, err := r.check(ctx, w.name, true)
			switch {
			case err == nil:
				reports[i] = rep
			case ctx.Err() != nil:
				reports[i] = w.late(reports[i])
			default: // it was removed
				reports[i].Results = nil
			}
		})
	}
	wg.Wait()
}

// late are the results of a round that has not ended in time: what there is of them, and
// unknown for the rest.
func (w *watched) late(before Report) Report {
	w.mu.Lock()
	done := Report{Peer: w.name, Results: slices.Clone(w.partial)}
	w.mu.Unlock()
	names := []string{api.ServiceGateway, api.ServiceAuth, api.ServiceAPIServer}
	for _, res := range before.Results {
		if !slices.Contains(names, res.Name) {
			names = append(names, res.Name)
		}
	}
	for _, name := range names {
		if _, found := done.find(name); found {
			continue
		}
		target, _, _ := strings.Cut(name, "-")
		if target != api.ServiceAuth && target != api.ServiceAPIServer {
			target = api.ServiceGateway
		}
		r := begin(target, Facts{Name: w.name})
		r.name = name
		done.Results = append(done.Results, r.result(api.Verdict{Verdict: api.Unknown,
			Cause: "the check was not finished within " + catalogue.Seconds(reportLimit),
			Fix:   fmt.Sprintf("run `postern check %s` again", w.name), Command: "postern check " + w.name}))
	}
	return done
}

func summary(checks []api.Check) api.CheckSummary {
	var s api.CheckSummary
	for _, c := range checks {
		switch c.Verdict.Verdict {
		case api.OK:
			s.OK++
		case api.Warning:
			s.Warning++
		case api.Error:
			s.Error++
		case api.Off:
			s.Off++
		default:
			s.Unknown++
		}
	}
	return s
}

// ownChecks are the checks of this gateway; for a report on one peer only those that
// something there follows from.
func ownChecks(own []Result, peer string, peers []api.Check) []api.Check {
	var out []api.Check
	for _, res := range own {
		follows := slices.ContainsFunc(peers, func(c api.Check) bool { return c.DependsOn == ownPrefix+res.Name })
		if peer == "" || follows {
			out = append(out, res.check("", api.DirectionOwn))
		}
	}
	return out
}

// check is a result as reports have it.
func (r Result) check(peer, direction string) api.Check {
	c := api.Check{Name: r.Name, Peer: peer, Target: r.Target, Direction: direction,
		Verdict: r.Verdict, DependsOn: r.DependsOn, Stages: []api.CheckStage{}}
	for _, s := range r.Stages {
		c.Stages = append(c.Stages, api.CheckStage{Stage: s.Name, Verdict: s.Outcome,
			Seconds: s.Took.Seconds(), Detail: s.Detail, Via: r.Verdict.Via})
	}
	return c
}

// peerChecks are the checks of one peer, in both directions.
func peerChecks(f Facts, rep Report, own []Result) []api.Check {
	results := follow(rep.Results, own, f)
	var out []api.Check
	if len(results) == 0 {
		for _, name := range []string{api.ServiceGateway, api.ServiceAuth, api.ServiceAPIServer} {
			out = append(out, api.Check{Name: name, Peer: rep.Peer, Target: name, Direction: api.DirectionOutbound,
				Verdict: api.Verdict{Verdict: api.Unknown, Cause: "not checked yet"}, Stages: []api.CheckStage{}})
		}
	}
	for _, res := range results {
		out = append(out, res.check(rep.Peer, api.DirectionOutbound))
	}
	if !f.Stock {
		out = append(out, inbound(f, results, own)...)
	}
	return out
}
