package check

import (
	"context"
	"fmt"

	"github.com/postern-dev/postern/control/api"
)

// round checks the gateway, then auth, then the API server of a peer. What the answer of
// one says about the next (offers, certificate authority) is used at once through Facts.
// If it need not be full and the gateway works, the verdicts before stand for the other
// two; the second result tells whether it was full.
//
// A failure has one root: while the gateway fails, the other two are not tried but
// unknown, and say what they wait for.
func (r *Runner) round(ctx context.Context, peer string, before Report, full bool) (Report, bool) {
	rep := Report{Peer: peer}
	f, ok := r.opts.Facts(peer)
	if !ok {
		return rep, full
	}
	gateway := Gateway(ctx, r.opts.Ping, f)
	rep.Results = append(rep.Results, gateway)
	switch v := gateway.Verdict; {
	case v.Verdict == api.Error || v.Code == string(AwaitingApproval):
		for _, target := range []string{api.ServiceAuth, api.ServiceAPIServer} {
			rep.Results = append(rep.Results, dependent(target, f, gateway))
		}
		return rep, true
	case !full && v.Verdict == api.OK:
		rep.Results = append(rep.Results, before.without(api.ServiceGateway)...)
		return rep, false
	}
	rep.Results = append(rep.Results, r.services(ctx, peer, f)...)
	return rep, true
}

// services checks auth and the API server of a peer whose gateway works.
func (r *Runner) services(ctx context.Context, peer string, f Facts) []Result {
	auth := Auth(ctx, r.opts.Dial, f)
	if auth.Hello != nil && r.opts.OnHello != nil {
		r.opts.OnHello(peer, *auth.Hello)
	}
	f, ok := r.opts.Facts(peer)
	if !ok {
		return []Result{auth}
	}
	apiServer := APIServer(ctx, r.opts.Dial, f)
	if c := Code(apiServer.Verdict.Code); auth.Verdict.Verdict == api.Error &&
		(c == IdentityMissing || c == IdentityExpired) {
		apiServer = dependent(api.ServiceAPIServer, f, auth) // auth is who issues it
	}
	return []Result{auth, apiServer}
}

// dependent is the result for a target that waits for another one, or that the peer
// does not offer in any case.
func dependent(target string, f Facts, root Result) Result {
	r := begin(target, f)
	granted, known := f.offers(target)
	if f.Stock || (known && !granted) {
		if target == api.ServiceAuth {
			return r.off(AuthOff)
		}
		return r.off(APIServerOff)
	}
	v := root.Verdict
	return r.result(api.Verdict{Verdict: api.Unknown, Stage: v.Stage,
		Cause: fmt.Sprintf("not known while %s fails (%s)", root.Target, v.Code),
		Fix:   fmt.Sprintf("mend %s first: %s", root.Target, v.Fix)})
}
