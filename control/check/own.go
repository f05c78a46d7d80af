package check

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// ownState is the state of the gateway's own checks.
type ownState struct {
	// checking is held during a round, so that two do not overlap.
	checking sync.Mutex

	mu        sync.Mutex
	resources resources
	usage     usage
	upstreams []verdict.Finding
	delay     delay // of a round
	starved   starved
	judged    []verdict.Finding // the latest result of the periodic checks
	kept      kept
	trying    time.Time // since when a try is running; zero if none is
	// findings are the latest of all own checks, for the log.
	findings []verdict.Finding
	recent   recent
	moves    moves
}

// ownFacts returns what is known about this gateway now; nil if nothing.
func (r *Runner) ownFacts() *Own {
	if r.opts.Own == nil {
		return nil
	}
	o := r.opts.Own()
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	o.Moved = r.own.moves.see(o.Shown, time.Now())
	if older := r.own.resources.older; !older.at.IsZero() {
		o.Filtered, o.FilteredIn = since(r.own.usage.filtered, older.filtered), r.own.usage.at.Sub(older.at)
		o.FilteredBefore = r.own.resources.filtered
	}
	return &o
}

// startOwn starts the goroutine of the gateway's own checks, once; r.mu is held.
func (r *Runner) startOwn() {
	if r.opts.Own == nil {
		return
	}
	r.ownOnce.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		r.cancelOwn = cancel
		r.wg.Go(func() {
			defer cancel()
			r.runOwn(ctx)
		})
	})
}

// runOwn checks this gateway until ctx ends: limits every interval, and the servers behind its
// services as often as a peer's.
func (r *Runner) runOwn(ctx context.Context) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	var fullAt time.Time
	watched := func() delay { return 0 }
	for {
		select {
		case <-ctx.Done():
			watched()
			return
		case <-wait.C:
			r.noted(watched())
		}
		full := !time.Now().Before(fullAt) || !r.upstreamsWell()
		if full {
			fullAt = time.Now().Add(spread(r.opts.FullInterval))
		}
		r.checkOwn(ctx, full)
		if ctx.Err() != nil {
			return
		}
		results := r.ownFindings(r.ownFacts(), true)
		r.own.mu.Lock()
		before := r.own.findings
		r.own.findings = results
		r.own.mu.Unlock()
		r.logChanges("", before, results)
		watched = func() delay { return 0 }
		if _, putOff := verdict.Find(results, verdict.Own(NameDelay)); putOff {
			watched = r.watchDelay() // so that later delays are noticed soon
		}
		wait.Reset(spread(r.opts.Interval))
	}
}

// upstreamsWell reports whether the upstreams need not be checked sooner.
func (r *Runner) upstreamsWell() bool {
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	if suspect, _ := r.own.recent.suspects(time.Now()); suspect {
		return false
	}
	for _, res := range r.own.upstreams {
		if res.Outcome != api.OK {
			return false
		}
	}
	return true
}

// checkOwn runs a round of the checks that take time or compare with earlier values.
func (r *Runner) checkOwn(ctx context.Context, full bool) {
	if r.opts.Own == nil {
		return
	}
	r.own.checking.Lock()
	defer r.own.checking.Unlock()
	o := r.opts.Own()
	r.own.mu.Lock()
	r.own.usage = r.own.resources.sample(r.opts.Root, o, time.Now())
	r.own.mu.Unlock()
	if !full {
		return
	}
	if r.opts.State != nil {
		r.tryState()
	}
	end := r.watchDelay()
	upstreams := CheckUpstreams(ctx, r.opts.Network, o.Upstreams)
	d := r.noted(end())
	if ctx.Err() != nil {
		return
	}
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	r.own.delay, r.own.upstreams = d.blamed(upstreams, time.Time{}), upstreams
}

// tryState tries the state directory, and waits for a hanging disk only so long: the try continues,
// and there is never more than one.
func (r *Runner) tryState() {
	r.own.mu.Lock()
	before, busy := r.own.kept, !r.own.trying.IsZero()
	if !busy {
		r.own.trying = time.Now()
	}
	r.own.mu.Unlock()
	done := make(chan struct{})
	if !busy {
		go func() {
			defer close(done)
			now := before.tried(r.opts.State, time.Now())
			r.own.mu.Lock()
			defer r.own.mu.Unlock()
			r.own.kept, r.own.trying = now, time.Time{}
		}()
	}
	patience := time.NewTimer(statePatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C: // see kept.hanging
	}
}

// Own returns the current findings about this gateway; nothing is tried for them.
func (r *Runner) Own() []verdict.Finding { return r.ownFindings(r.ownFacts(), false) }

// ownFindings returns the current findings about this gateway, most basic first. scheduled says
// that they count as a round.
func (r *Runner) ownFindings(known *Own, scheduled bool) []verdict.Finding {
	if known == nil {
		return nil
	}
	o := *known
	peers, skews := r.standing()
	now := time.Now()
	root := r.opts.Root
	if runtime.GOOS != "linux" {
		root = nil // elsewhere resolv.conf is not all that counts
	}
	r.own.mu.Lock()
	skews = append(skews, clocks(r.own.upstreams)...)
	r.own.mu.Unlock()
	out := append([]verdict.Finding{network(o, peers, now), Exposure(o, peers)}, slices.Concat(ownKey(o, peers, now), strangers(o, now), resolver(root, o, peers), Proxy(o, now), STUNServers(o), TURNServers(o), PortMapping(o), LAN(o.LAN))...)
	r.own.mu.Lock()
	silentSince(now, out, r.own.judged)
	r.own.judged = slices.Clone(out)
	blamed := max(peers.delay, r.own.delay, r.own.starved.since(now).blamed(out, r.present.since()))
	out = append(out, r.own.upstreams...)
	tried := len(out) // the others have a memory of their own
	if !r.own.usage.at.IsZero() {
		out = append(out, r.own.resources.judge(o, r.own.usage, now)...)
	}
	out = append(out, r.own.kept.hanging(r.own.trying, now).findings(now)...)
	out = append(out, starvation(blamed)...)
	r.own.mu.Unlock()
	out = append(out, foundElsewhere(o, now)...)
	out, _ = verdict.Correlate(now, nil, append(out, Tickets(o.TicketAlarmAt, o.TicketAlarmOf), Clock(skews)), nil)
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	switch {
	case blamed > 0:
	case scheduled:
		r.own.recent.own(out[:tried], now)
	default:
		r.own.recent.lasts(out[:tried], now)
	}
	return append(r.own.recent.shown(out[:tried:tried], now), out[tried:]...)
}

// standing summarises the last reports of the peers. A clock that makes a peer unreachable is
// already that peer's failure.
func (r *Runner) standing() (standing, []skew) {
	var s standing
	var skews []skew
	for _, w := range r.watchedPeers() {
		rep := w.round()
		s.delay = max(s.delay, rep.delay)
		v, _ := verdict.Find(rep.Findings, api.ServiceGateway)
		switch {
		case v.Outcome == api.OK || v.Outcome == api.Warning && v.Code != catalogue.AwaitingApproval:
			s.working++
			if rep.skew != 0 {
				skews = append(skews, skew{rep.Peer, rep.skew})
			}
			skews = append(skews, clocks(rep.Findings)...)
		case v.Code == catalogue.PathSlow, v.Code == catalogue.PingLost: // it answers probes
			s.answering++
		case v.Failed() || v.Because != nil && v.Because.Failed():
			s.failing++
			s.unreached = append(s.unreached, rep.Peer)
			if rep.heard.After(s.heard) {
				s.heard = rep.heard
			}
			switch v.Code {
			case catalogue.PeerMustDial:
				s.waiting = append(s.waiting, rep.Peer)
			case catalogue.ResolverSilent:
				s.unnamed = append(s.unnamed, v.Params().Names...)
			}
		}
	}
	return s, skews
}

// clocks returns those that servers have shown.
func clocks(list []verdict.Finding) (out []skew) {
	for _, f := range list {
		if f.Skew == 0 {
			continue
		}
		of := "this gateway's API server"
		if f.Peer != "" {
			of = "the API server of " + f.Peer
		}
		out = append(out, skew{of, f.Skew})
	}
	return out
}
