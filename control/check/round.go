package check

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// effort is how much of a peer a round checks.
type effort struct {
	// full checks the services as well. Without it, their earlier verdicts stand while the gateway
	// works.
	full bool
	// measured also measures loss and sizes.
	measured bool
	// scheduled says that it was time for the round, and nothing else asked for it.
	scheduled bool
}

// round is look, without the verdicts that depend on time if this process was starved meanwhile.
func (r *Runner) round(ctx context.Context, w *watched, before Round, e effort) (Round, bool) {
	began, end := time.Now(), r.watchDelay()
	rep, full := r.look(ctx, w, before, e)
	silentSince(began, rep.Findings, before.Findings)
	if rep.delay = r.noted(end()).blamed(rep.Findings, r.present.since()); rep.delay > 0 { // the peer is told, too
		rep.Findings, _ = verdict.Correlate(time.Now(), starvation(rep.delay), rep.Findings, nil)
	}
	return rep, full
}

// look checks a peer's gateway, then auth, then the API server. What one answer says about the next
// (offers, certificate authority) is used at once through Facts. The second result reports whether
// the round was full.
//
// A failure has one root: while the gateway fails, what is inside the tunnel is not tried but
// unknown, and says what it waits for.
func (r *Runner) look(ctx context.Context, w *watched, before Round, e effort) (Round, bool) {
	rep := Round{Peer: w.name}
	f, ok := r.facts(w.name)
	if !ok {
		return rep, e.full
	}
	rep.skew, rep.started = f.Skew, f.started()
	outside := func() []verdict.Finding { return nil }
	if e.full {
		outside = tryOutside(ctx, r.opts.Network, f)
	}
	reach := func(ctx context.Context) verdict.Finding {
		return gateway(ctx, r.opts.Ping, f, asking{doubt: func() { r.doubt(w.name) }, reprobe: func() { r.reprobe(w.name) }, again: func() Facts {
			now := r.factsOr(w.name, f)
			rep.heard, rep.started, rep.remote = now.lastHeard(), now.started(), now.Path.direct()
			return now
		}})
	}
	reached := reach(ctx)
	w.publish(reached)
	unreached := func(root verdict.Finding) (Round, bool) {
		if !e.full {
			outside = tryOutside(ctx, r.opts.Network, f)
		}
		found := []verdict.Finding{root}
		if f.measurable() {
			found = append(found, dependent(NameMTU, api.ServiceGateway, f, root))
		}
		for _, service := range endpoints[1:] {
			found = append(found, dependent(service, service, f, root))
		}
		rep.Findings = together(found, outside())
		return rep, true
	}
	if reached.Failed() || reached.Code == catalogue.AwaitingApproval {
		return unreached(reached)
	}
	quality := make(chan []verdict.Finding, 1)
	go func() { quality <- r.quality(ctx, f, reached, before, e) }()
	if !e.full && (reached.Outcome == api.OK || reached.Outcome == api.Warning) {
		rep.Findings = together(append(<-quality, before.services()...), nil)
		return rep, false
	}
	services := r.services(ctx, w, f)
	way := <-quality
	if slices.ContainsFunc(services, hangs) {
		heard := false
		for range 2 {
			heard = heard || answered(ctx, r.opts.Ping, f, 0)
		}
		if !heard {
			soon, cancel := context.WithTimeout(ctx, reachAgain)
			defer cancel()
			if again := reach(soon); again.Failed() {
				return unreached(again)
			}
		}
		if !e.measured {
			way = r.quality(ctx, f, reached, before, effort{full: true, measured: true})
		}
	}
	rep.Findings = together(onTheWay(way, services), outside())
	return rep, true
}

// reachAgain is how long the gateway check, and a few echoes, may take if services have timed out
// since it last passed: the tunnel may have gone, and the round has to end in reportLimit.
const reachAgain = time.Second

// heavyLoss is the share of lost echoes from which a connection may fail within Timeout: TCP
// doubles its timeout with each lost packet.
const heavyLoss = 0.1

// hangs reports whether a service failed in a way that lost packets cause.
func hangs(f verdict.Finding) bool {
	return f.Failed() && (f.Code == catalogue.AuthTimeout || f.Code == catalogue.APIServerTimeout)
}

// onTheWay appends the services to the findings about the path. Those that hang rest on it, and so
// does the MTU if many packets of any size are lost.
func onTheWay(way, services []verdict.Finding) []verdict.Finding {
	var harm []string
	for i, f := range way {
		p := f.Params()
		lossy := f.Code == catalogue.PacketsLost && max(p.Loss, float64(p.Lost)/max(1, float64(p.Sent))) >= heavyLoss
		if f.Name == NameMTU && len(harm) > 0 {
			way[i].Rests = harm
		}
		if lossy || f.RTT >= slowTrip || f.Code == catalogue.PathMTUSmall || f.Code == catalogue.PathSlow {
			harm = append(harm[:len(harm):len(harm)], f.Ref())
		}
	}
	for i, f := range services {
		if hangs(f) || f.Code == catalogue.APIServerSlow {
			services[i].Rests = append(harm[:len(harm):len(harm)], f.Rests...)
		}
	}
	return append(way, services...)
}

// together appends the findings outside the tunnel to those inside, and correlates them. If the
// path outside is in use, auth there issues the identity that both API server checks use.
func together(inside, outside []verdict.Finding) []verdict.Finding {
	issuer := api.ServiceAuth
	if auth, _ := verdict.Find(outside, NameAuthDirect); auth.Used {
		issuer = auth.Name
	}
	var all []verdict.Finding
	for _, in := range inside {
		all = append(all, in)
		if out, tried := verdict.Find(outside, verdict.Outside(in.Target)); tried && in.Name == in.Target {
			if wantsIdentity(out) {
				out.Rests = []string{issuer}
			}
			all = append(all, out)
		}
	}
	all, _ = verdict.Correlate(time.Now(), nil, all, nil)
	return all
}

// wantsIdentity reports whether the API server check lacks what auth issues.
func wantsIdentity(apiServer verdict.Finding) bool {
	return apiServer.Code == catalogue.IdentityMissing || apiServer.Code == catalogue.IdentityExpired
}

// tryOutside starts the checks that the configuration allows outside the tunnel, while others run
// inside. The returned function waits for their findings; without a URL there are none.
func tryOutside(ctx context.Context, n Network, f Facts) (wait func() []verdict.Finding) {
	var found [2]verdict.Finding
	var wg sync.WaitGroup
	wg.Go(func() { found[0], _ = AuthDirect(ctx, n, f) })
	wg.Go(func() { found[1], _ = APIServerDirect(ctx, n, f) })
	return func() []verdict.Finding {
		wg.Wait()
		return found[:]
	}
}

// measurable reports whether sizes can be checked at all.
func (f Facts) measurable() bool { return f.Path.LinkMTU > 0 && f.Address.IsValid() && !f.Pending }

// quality measures the loss and sizes of a working gateway. Earlier findings that are not measured
// again stand.
func (r *Runner) quality(ctx context.Context, f Facts, reached verdict.Finding, before Round, e effort) []verdict.Finding {
	if !f.Address.IsValid() {
		return []verdict.Finding{reached}
	}
	mtu := make(chan []verdict.Finding, 1)
	go func() { mtu <- r.sizes(ctx, f, before, e) }()
	out := []verdict.Finding{reached}
	was, lossy := verdict.Find(before.Findings, api.ServiceGateway)
	lossy = lossy && was.Code == catalogue.PacketsLost && was.Because == nil
	was.Outcome = api.Warning // it may have been the root of an error
	due := lossy && e.full && time.Since(was.At) >= r.opts.FullInterval/2
	plain := reached.Outcome != api.Error
	switch {
	case plain && (e.measured || due):
		if l, measured := r.burst(ctx, f, reached.RTT); measured {
			out = withLoss(reached, l, f)
		} else if lossy {
			out = replaced(reached, was)
		}
	case plain && lossy:
		out = replaced(reached, was)
	}
	if path, known := pathOf(f); known {
		out = append(out, path)
	}
	if restarts, many := restartsOf(f); many {
		out = append(out, restarts)
	} else if x, regular := interruptionsOf(f); regular {
		out = append(out, x)
	}
	return append(out, <-mtu...)
}

// burst measures loss when it is this peer's turn; false if that does not come in time, as with
// very many peers.
func (r *Runner) burst(ctx context.Context, f Facts, rtt time.Duration) (loss, bool) {
	turn := time.NewTimer(burstWait)
	defer turn.Stop()
	select {
	case r.bursts <- struct{}{}:
		defer func() { <-r.bursts }()
		return measureLoss(ctx, r.opts.Ping, f, rtt)
	case <-turn.C:
	case <-ctx.Done():
	}
	return loss{}, false
}

func (r *Runner) sizes(ctx context.Context, f Facts, before Round, e effort) []verdict.Finding {
	was, known := verdict.Find(before.Findings, NameMTU)
	small := known && was.Code == catalogue.PathMTUSmall && was.Because == nil
	was.Outcome = api.Warning // it may have been the root of an error
	if small && was.Params().Sent > 0 && !e.full {
		return []verdict.Finding{was}
	}
	res, ok := MTU(ctx, r.opts.Ping, f, e.measured || small && was.Params().Sent > 0)
	if !ok {
		return nil
	}
	return []verdict.Finding{res}
}

// services checks auth and the API server of a peer whose gateway works, concurrently if the peer's
// offers are known. If auth's answer changes them, the API server is checked again.
func (r *Runner) services(ctx context.Context, w *watched, f Facts) []verdict.Finding {
	early := make(chan verdict.Finding, 1)
	known := f.Offers != nil
	if known {
		go func() { early <- APIServer(ctx, r.opts.Dial, f) }()
	}
	auth, hello := Auth(ctx, r.opts.Dial, f)
	w.publish(auth)
	if hello != nil && r.opts.OnHello != nil {
		r.opts.OnHello(w.name, *hello)
	}
	now, ok := r.facts(w.name)
	var apiServer verdict.Finding
	if known {
		apiServer = <-early
	}
	if !ok {
		return []verdict.Finding{auth}
	}
	if !known || !sameService(f, now) {
		apiServer = APIServer(ctx, r.opts.Dial, now)
	}
	// Without a hello it is not known either which authority the peer announces.
	unannounced := now.Offers == nil && len(now.CA) == 0 && apiServer.Code == catalogue.TLSUnknownCA
	if auth.Failed() && (wantsIdentity(apiServer) || unannounced) {
		apiServer = dependent(api.ServiceAPIServer, api.ServiceAPIServer, f, auth) // auth issues it, and tells it
	}
	return []verdict.Finding{auth, apiServer}
}

// sameService reports whether the API server check would be the same.
func sameService(a, b Facts) bool {
	return slices.Equal(a.Offers, b.Offers) && (a.Offers == nil) == (b.Offers == nil) && a.ServerName == b.ServerName &&
		string(a.CA) == string(b.CA) && a.Identity == b.Identity && a.Token == b.Token
}

// dependent is the finding of a check that waits for another one, or of something that the peer
// does not offer anyway.
func dependent(name, target string, f Facts, root verdict.Finding) verdict.Finding {
	r := begin(name, target, f)
	granted, known := f.offers(target)
	if target != api.ServiceGateway && (f.Stock || (known && !granted)) {
		if target == api.ServiceAuth {
			return r.off(catalogue.AuthOff)
		}
		return r.off(catalogue.APIServerOff)
	}
	r.Stage, r.Rests = root.Stage, []string{root.Name}
	return r.end(api.Unknown, catalogue.NotTried)
}

// askEvery is the least time between two queries of the servers outside because peers are silent.
const askEvery = 5 * time.Second

// doubt looks for where packets end while a peer does not answer: on the path to it, and whether
// anyone else outside answers.
func (r *Runner) doubt(peer string) {
	if r.opts.Doubt != nil {
		r.opts.Doubt(peer)
	}
	r.askServers(askEvery)
}

// reprobe looks again whether probes pass to a peer that answers in the tunnel.
func (r *Runner) reprobe(peer string) {
	if r.opts.Reprobe != nil {
		r.opts.Reprobe(peer)
	}
}

// askServers queries the servers outside, unless that was done within a time.
func (r *Runner) askServers(within time.Duration) {
	last, now := r.asked.Load(), time.Now()
	if r.opts.Ask != nil && (last == nil || now.Sub(*last) >= within) && r.asked.CompareAndSwap(last, &now) {
		r.opts.Ask()
	}
}

// facts returns what is known about a peer now, and about this gateway.
func (r *Runner) facts(peer string) (Facts, bool) {
	f, ok := r.opts.Facts(peer)
	f.own = r.ownFacts()
	f.answersAt = func(address string) string { return r.answersAt(address, peer) }
	return f, ok
}

// answersAt returns the peer other than one that was reached at an address in its last round; empty
// for none.
func (r *Runner) answersAt(address, but string) string {
	for _, w := range r.watchedPeers() {
		rep := w.round()
		if w.name == but || rep.remote != address {
			continue
		}
		if v, _ := verdict.Find(rep.Findings, api.ServiceGateway); v.Outcome != api.OK && v.Outcome != api.Warning {
			continue
		}
		if f, ok := r.opts.Facts(w.name); ok && f.Path.direct() == address { // it is still there
			return w.name
		}
	}
	return ""
}

// factsOr returns the earlier facts for a peer that was removed meanwhile.
func (r *Runner) factsOr(peer string, before Facts) Facts {
	if f, ok := r.facts(peer); ok {
		return f
	}
	return before
}
