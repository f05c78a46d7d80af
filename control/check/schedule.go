package check

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

const (
	// defaultInterval is the time between rounds.
	defaultInterval = 30 * time.Second
	// fullRounds is how many intervals pass between full rounds, which check auth and the API
	// server, while all is well: 5 min. A full round costs some 7 KB on the wire and an entry in
	// the API server's audit log, a ping 0.3 KB: 2 MB per day and peer instead of 20 MB.
	fullRounds = 10
	// defaultRetry is the time to the next round after a failure; it doubles up to the interval
	// while the failure lasts.
	defaultRetry = 5 * time.Second
	// A round that finds something tentative is followed by another after lookAgain, lookAgains
	// times until nothing fails: a path that is lost has been given up by then.
	lookAgain  = time.Second
	lookAgains = 4
	// jitter spreads rounds by a fifth each way, so that gateways that started together drift
	// apart.
	jitter = 0.2
	// beats is how many moments per interval a round may begin at: one a second, in half a minute.
	// The rounds of many peers then wake the process together, and waking up costs more than a
	// round while all is well.
	beats = 30
)

const (
	// See [Runner.Wake].
	wakeBurst = 8
	wakeEvery = 5 * time.Second
)

// run checks a peer until ctx ends. Each turn has its own goroutine: a round's calls are deep, and
// a stack keeps its size until some collections have passed, 16 KB for each of the waiting peers.
func (r *Runner) run(ctx context.Context, w *watched) {
	wait := time.NewTimer(0) // the first round is at once
	defer wait.Stop()
	p := pace{retry: r.opts.Retry}
	pauses := make(chan time.Duration)
	woken := rate.NewLimiter(rate.Every(wakeEvery), wakeBurst)
	var due time.Time // when wait fires
	soon := false     // a full round is wanted then
	for {
		var asked demand
		var e effort
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
			e.full, e.scheduled, soon = soon, !soon, false
		case <-w.wake:
			if !woken.Allow() {
				soon = true
				wait.Reset(max(0, min(wakeEvery, time.Until(due))))
				continue
			}
			e.full = true
		case asked = <-w.demand:
			e = effort{full: true, measured: asked.measured}
		}
		go func() { pauses <- r.turn(ctx, w, &p, asked.answer, e) }()
		pause := <-pauses
		if ctx.Err() != nil {
			return
		}
		due = time.Now().Add(pause)
		wait.Reset(pause)
	}
}

// pace is what one turn of a peer's checks passes to the next.
type pace struct {
	retry  time.Duration // the pause after the next failure
	looks  int           // how often one followed at once since something fails
	fullAt time.Time     // when the next full round is due while all is well
}

// turn runs a round of a peer's checks if there is a reason, sends it to the requester, if any
// (answer may be nil), and returns the pause until the next turn.
func (r *Runner) turn(ctx context.Context, w *watched, p *pace, answer chan<- Round, e effort) time.Duration {
	inRound, end, before, begun := w.begin(ctx, answer != nil)
	brief := sync.OnceValues(func() (Facts, bool) { return r.brief(w.name) })
	suspect, services := w.suspects(time.Now())
	e.full = e.full || services || !time.Now().Before(p.fullAt) || !well(before, brief)
	if !begun || !e.full && !suspect && r.probed(before, brief) {
		end()
		if !suspect {
			r.forgotten(w)
		}
		return r.pause(r.opts.Interval)
	}
	rep, full := r.round(inRound, w, before, e)
	cut := inRound.Err() != nil
	end()
	if ctx.Err() != nil || cut {
		return r.opts.Retry // an interrupted round is no verdict
	}
	if full {
		p.fullAt = time.Now().Add(spread(r.opts.FullInterval))
	}
	shown := r.keep(w, rep, e.scheduled)
	if answer != nil {
		answer <- shown
	}
	next := r.opts.Interval
	if !tentative(rep) {
		p.looks = 0
	}
	switch {
	case tentative(rep) && p.looks < lookAgains:
		next = min(lookAgain, p.retry)
		p.looks++
	case failing(rep) || rep.delay > 0:
		next, p.retry = p.retry, min(2*p.retry, r.opts.Interval)
	default:
		p.retry = r.opts.Retry
	}
	return r.pause(next)
}

// probed reports whether the path finder has just shown that a peer is there, while all is well. A
// ping would show no more, and would keep WireGuard's session alive for itself alone, at 3 MB a
// day. What there is to say about the path must be unchanged.
func (r *Runner) probed(before Round, brief func() (Facts, bool)) bool {
	f, ok := brief()
	if !ok || f.Probed.IsZero() || time.Since(f.Probed) >= r.opts.Interval {
		return false
	}
	gateway, _ := verdict.Find(before.Findings, api.ServiceGateway)
	_, apart := verdict.Find(before.Findings, NameRelay)
	mtu, _ := verdict.Find(before.Findings, NameMTU)
	narrow := mtu.Code == catalogue.PathMTUSmall
	if _, restarts := verdict.Find(before.Findings, NameRestarts); restarts {
		return false
	}
	_, told := verdict.Find(before.Findings, NameInterruptions)
	if told != f.interrupted(time.Now(), &catalogue.Params{}) {
		return false
	}
	return f.relayed(time.Now()) == (apart || gateway.Code == catalogue.RelayInUse) &&
		gateway.Code != catalogue.PathSlow && f.Path.RTT < slowTrip && gateway.Code != catalogue.ProbesDropped &&
		(narrow && mtu.Params().Sent > 0 || narrow == (f.probedSizes().lost > 0))
}

// brief returns enough facts to decide whether a peer needs checking.
func (r *Runner) brief(peer string) (Facts, bool) {
	if r.opts.Brief == nil {
		return r.opts.Facts(peer)
	}
	return r.opts.Brief(peer)
}

// pause returns the time until the last beat within the duration, which varies by the jitter.
func (r *Runner) pause(d time.Duration) time.Duration {
	d = max(d, beats) // so that the beats are at least 1 ns apart
	since := time.Since(r.epoch)
	next := since + spread(d)
	return next - next%(d/beats) - since
}

// spread varies a duration by the jitter.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*rand.Float64()))
}

// tentative reports whether a second look may show more.
func tentative(rep Round) bool {
	return slices.ContainsFunc(rep.Findings, func(f verdict.Finding) bool { return f.Failed() && f.Sure == api.Tentative })
}

func failing(rep Round) bool {
	for _, res := range rep.Findings {
		if res.Outcome == api.Error {
			return true
		}
	}
	return false
}

// well reports whether everything works. It is fine if a peer does not offer something and
// announces changes of its offers: asking each round would be 5 MB a day. A peer that does not
// announce them is asked, except for a plain WireGuard peer, which never offers anything. A warning
// about the tunnel says nothing about the services.
func well(rep Round, brief func() (Facts, bool)) bool {
	off := false
	for _, res := range rep.Findings {
		v := res.Outcome
		off = off || v == api.Off
		if v != api.OK && v != api.Off && (v != api.Warning || res.Target != api.ServiceGateway) {
			return false
		}
	}
	if off {
		if f, ok := brief(); !ok || !f.TellsOffers && !f.Stock {
			return false
		}
	}
	return len(rep.Findings) > 0
}
