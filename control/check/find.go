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
	"github.com/postern-dev/postern/control/verdict"
)

// reportLimit bounds a report on demand: users want a verdict within 10 s of the command, which
// also has to start and print.
const reportLimit = 9 * time.Second

// serversLook is how often to look whether the servers outside have answered.
const serversLook = 50 * time.Millisecond

// endpoints are the checks of every peer.
var endpoints = []string{api.ServiceGateway, api.ServiceAuth, api.ServiceAPIServer}

func (r *Runner) watchedPeers() []*watched {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*watched
	for _, name := range slices.Sorted(maps.Keys(r.peers)) {
		out = append(out, r.peers[name])
	}
	return out
}

// Find returns the findings about this gateway and about one peer, or all if peer is empty. If
// fresh, all are checked first, concurrently and within 10 s; what is not ready by then is unknown.
// The peers' reports are not included.
func (r *Runner) Find(ctx context.Context, peer string, fresh bool) (own []verdict.Finding, peers []verdict.Peer, err error) {
	all := r.watchedPeers()
	if peer != "" {
		all = slices.DeleteFunc(all, func(w *watched) bool { return w.name != peer })
		if len(all) == 0 {
			return nil, nil, fmt.Errorf("check %s: %w", cleanText(peer), ErrNoPeer)
		}
	}
	rounds := make([]Round, len(all))
	for i, w := range all {
		rounds[i] = w.round()
	}
	if fresh {
		r.refresh(ctx, all, rounds)
		if err := context.Cause(ctx); err != nil {
			return nil, nil, fmt.Errorf("check: %w", err)
		}
	}
	for _, round := range rounds {
		if _, there := r.brief(round.Peer); !there {
			continue
		}
		if len(round.Findings) == 0 {
			for _, name := range endpoints {
				round.Findings = append(round.Findings, verdict.NotChecked(round.Peer, name, name))
			}
		}
		peers = append(peers, verdict.Peer{Name: round.Peer, Outbound: round.Findings})
	}
	return r.Own(), peers, nil
}

// refresh runs the checks of the peers and of this gateway, and stores their findings in rounds.
func (r *Runner) refresh(ctx context.Context, peers []*watched, rounds []Round) {
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	r.askServers(0)
	var wg sync.WaitGroup
	wg.Go(func() { r.checkOwn(ctx, true) })
	for i, w := range peers {
		wg.Go(func() {
			rep, err := r.check(ctx, w.name, true)
			switch {
			case err == nil:
				rounds[i] = rep
			case ctx.Err() != nil:
				rounds[i] = w.late(rounds[i])
			default: // removed
				rounds[i].Findings = nil
			}
		})
	}
	wg.Wait()
	r.awaitServers(ctx)
}

// serverPatience is how long a check waits for a server outside.
const serverPatience = 3 * time.Second

// awaitServers waits until every queried server outside has answered or is given up.
func (r *Runner) awaitServers(ctx context.Context) {
	if r.opts.Own == nil {
		return
	}
	tick := time.NewTicker(serversLook)
	defer tick.Stop()
	asking := func(s Server) bool { return !s.Unanswered.IsZero() && time.Since(s.Unanswered) < serverPatience }
	for o := r.opts.Own(); slices.ContainsFunc(o.STUN, asking) || slices.ContainsFunc(o.TURN, asking); o = r.opts.Own() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// late returns a round that has not finished in time: its results so far, and unknown for the rest.
func (w *watched) late(before Round) Round {
	w.mu.Lock()
	done := Round{Peer: w.name, Findings: slices.Clone(w.recent.shown(w.partial, time.Now()))}
	w.mu.Unlock()
	names := slices.Clone(endpoints)
	for _, f := range before.Findings {
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	for _, name := range names {
		if _, found := verdict.Find(done.Findings, name); found {
			continue
		}
		target, _, _ := strings.Cut(name, "-")
		if !slices.Contains(endpoints, target) {
			target = api.ServiceGateway
		}
		f := begin(name, target, Facts{Name: w.name}).end(api.Unknown, catalogue.NotFinished)
		done.Findings = append(done.Findings, f.With(func(p *catalogue.Params) { p.Timeout = reportLimit }))
	}
	return done
}

// services returns the findings except those of the gateway itself.
func (r Round) services() []verdict.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f verdict.Finding) bool { return f.Target == api.ServiceGateway })
}

// Findings returns those of the last round of a peer's checks, which nobody may change; none before
// the first round.
func (r *Runner) Findings(peer string) []verdict.Finding {
	r.mu.Lock()
	w := r.peers[peer]
	r.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.round().Findings
}

// Finding returns the latest one of a peer's check; empty before the first round.
func (r *Runner) Finding(peer, name string) verdict.Finding {
	f, _ := verdict.Find(r.Findings(peer), name)
	return f
}
