package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// effort is how much of a peer is looked at in a round.
type effort struct {
	// full asks the services as well. Without it, the verdicts before stand for them while
	// the gateway works.
	full bool
	// measured: loss and sizes are measured.
	measured bool
}

// round checks the gateway, then auth, then the API server of a peer. What the answer of
// one says about the next (offers, certificate authority) is used at once through Facts.
// The second result tells whether the round was full.
//
// A failure has one root: while the gateway fails, what is inside the tunnel is not tried
// but unknown, and says what it waits for.
func (r *Runner) round(ctx context.Context, w *watched, before Report, e effort) (Report, bool) {
	rep := Report{Peer: w.name}
	f, ok := r.facts(w.name)
	if !ok {
		return rep, e.full
	}
	rep.skew = f.Skew
	outside := func() []Result { return nil }
	if e.full {
		outside = tryOutside(ctx, r.opts.Network, f)
	}
	reached := gateway(ctx, r.opts.Ping, f, func() Facts { return r.factsOr(w.name, f) })
	w.publish(reached)
	v := reached.Verdict
	if v.Verdict == api.Error || v.Code == string(catalogue.AwaitingApproval) {
		if !e.full {
			outside = tryOutside(ctx, r.opts.Network, f)
		}
		rep.Results = append(rep.Results, reached)
		if f.measurable() {
			rep.Results = append(rep.Results, dependent(NameMTU, api.ServiceGateway, f, reached))
		}
		inside := []Result{dependent(api.ServiceAuth, api.ServiceAuth, f, reached),
			dependent(api.ServiceAPIServer, api.ServiceAPIServer, f, reached)}
		rep.Results = append(rep.Results, compared(inside, outside(), reached)...)
		return rep, true
	}
	quality := make(chan []Result, 1)
	go func() { quality <- r.quality(ctx, f, reached, before, e) }()
	if !e.full && (v.Verdict == api.OK || v.Verdict == api.Warning) {
		rep.Results = append(<-quality, before.services()...)
		return rep, false
	}
	inside := r.services(ctx, w, f)
	services := compared(inside, outside(), reached)
	rep.Results = append(<-quality, services...)
	return rep, true
}

// measurable reports whether sizes can be checked at all.
func (f Facts) measurable() bool { return f.Path.LinkMTU > 0 && f.Address.IsValid() && !f.Pending }

// quality measures how well a gateway works that does: loss and sizes. What was found
// before and is not measured again stands.
func (r *Runner) quality(ctx context.Context, f Facts, reached Result, before Report, e effort) []Result {
	if !f.Address.IsValid() {
		return []Result{reached}
	}
	mtu := make(chan []Result, 1)
	go func() { mtu <- r.sizes(ctx, f, before, e) }()
	out := []Result{reached}
	was, lossy := before.find(api.ServiceGateway)
	lossy = lossy && was.Verdict.Code == string(catalogue.PacketsLost)
	due := lossy && e.full && (was.Verdict.CheckedAt == nil || time.Since(*was.Verdict.CheckedAt) >= r.opts.FullInterval/2)
	plain := reached.Verdict.Verdict != api.Error
	switch {
	case plain && (e.measured || due):
		if l, measured := r.burst(ctx, f); measured {
			out = withLoss(reached, l, f)
		} else if lossy {
			out[0] = was
		}
	case plain && lossy:
		out[0] = was
	}
	return append(out, <-mtu...)
}

// burst measures loss when it is this peer's turn; false when that does not come in time,
// as with very many peers.
func (r *Runner) burst(ctx context.Context, f Facts) (loss, bool) {
	turn := time.NewTimer(burstWait)
	defer turn.Stop()
	select {
	case r.bursts <- struct{}{}:
		defer func() { <-r.bursts }()
		return measureLoss(ctx, r.opts.Ping, f)
	case <-turn.C:
	case <-ctx.Done():
	}
	return loss{}, false
}

func (r *Runner) sizes(ctx context.Context, f Facts, before Report, e effort) []Result {
	was, known := before.find(NameMTU)
	small := known && was.Verdict.Verdict == api.Warning
	if small && was.Params().Sent > 0 && !e.full {
		return []Result{was}
	}
	res, ok := MTU(ctx, r.opts.Ping, f, e.measured || small && was.Params().Sent > 0)
	if !ok {
		return nil
	}
	return []Result{res}
}

// services checks auth and the API server of a peer whose gateway works, both at the same
// time when it is known what the peer offers; if auth then says something else, the API
// server is asked again.
func (r *Runner) services(ctx context.Context, w *watched, f Facts) []Result {
	early := make(chan Result, 1)
	known := f.Offers != nil
	if known {
		go func() { early <- APIServer(ctx, r.opts.Dial, f) }()
	}
	auth := Auth(ctx, r.opts.Dial, f)
	w.publish(auth)
	if auth.Hello != nil && r.opts.OnHello != nil {
		r.opts.OnHello(w.name, *auth.Hello)
	}
	now, ok := r.facts(w.name)
	var apiServer Result
	if known {
		apiServer = <-early
	}
	if !ok {
		return []Result{auth}
	}
	if !known || !sameService(f, now) {
		apiServer = APIServer(ctx, r.opts.Dial, now)
	}
	if c := catalogue.Code(apiServer.Verdict.Code); auth.Verdict.Verdict == api.Error &&
		(c == catalogue.IdentityMissing || c == catalogue.IdentityExpired) {
		apiServer = dependent(api.ServiceAPIServer, api.ServiceAPIServer, f, auth) // auth is who issues it
	}
	return []Result{auth, apiServer}
}

// sameService reports whether the API server is to be asked in the same way.
func sameService(a, b Facts) bool {
	return slices.Equal(a.Offers, b.Offers) && (a.Offers == nil) == (b.Offers == nil) && a.ServerName == b.ServerName &&
		string(a.CA) == string(b.CA) && a.Identity == b.Identity && a.Token == b.Token
}

// dependent is the result for a check that waits for another one, or of what the peer
// does not offer in any case.
func dependent(name, target string, f Facts, root Result) Result {
	r := begin(target, f)
	r.name = name
	granted, known := f.offers(target)
	if target != api.ServiceGateway && (f.Stock || (known && !granted)) {
		if target == api.ServiceAuth {
			return r.off(catalogue.AuthOff)
		}
		return r.off(catalogue.APIServerOff)
	}
	v := root.Verdict
	res := r.result(api.Verdict{Verdict: api.Unknown, Stage: v.Stage,
		Cause: fmt.Sprintf("not known while %s fails (%s)", root.Name, v.Code),
		Fix:   fmt.Sprintf("fix %s first: %s", root.Name, v.Fix), Command: v.Command})
	res.DependsOn = root.Name
	return res
}

// facts are what is known of a peer now, and of this gateway.
func (r *Runner) facts(peer string) (Facts, bool) {
	f, ok := r.opts.Facts(peer)
	f.own = r.ownFacts()
	return f, ok
}

// factsOr gives the facts before for a peer that was removed meanwhile.
func (r *Runner) factsOr(peer string, before Facts) Facts {
	if f, ok := r.facts(peer); ok {
		return f
	}
	return before
}
