package check

import (
	"context"
	"fmt"

	"github.com/postern-dev/postern/control/api"
)

// round checks the gateway, then auth, then the API server of a peer. What the answer of
// one says about the next (offers, certificate authority) is used at once through Facts.
//
// A failure has one root: while the gateway fails, the other two are not tried but
// unknown, and say what they wait for.
func (r *Runner) round(ctx context.Context, peer string) Report {
	rep := Report{Peer: peer}
	f, ok := r.opts.Facts(peer)
	if !ok {
		return rep
	}
	gateway := Gateway(ctx, r.opts.Ping, f)
	rep.Results = append(rep.Results, gateway)
	if failed := gateway.Verdict; failed.Verdict == api.Error || failed.Code == string(AwaitingApproval) {
		for _, target := range []string{api.ServiceAuth, api.ServiceAPIServer} {
			rep.Results = append(rep.Results, dependent(target, f, gateway))
		}
		return rep
	}
	auth := Auth(ctx, r.opts.Dial, f)
	if auth.Hello != nil && r.opts.OnHello != nil {
		r.opts.OnHello(peer, *auth.Hello)
	}
	rep.Results = append(rep.Results, auth)

	if f, ok = r.opts.Facts(peer); !ok {
		return rep
	}
	apiServer := APIServer(ctx, r.opts.Dial, f)
	if c := Code(apiServer.Verdict.Code); auth.Verdict.Verdict == api.Error &&
		(c == IdentityMissing || c == IdentityExpired) {
		apiServer = dependent(api.ServiceAPIServer, f, auth) // auth is who issues it
	}
	rep.Results = append(rep.Results, apiServer)
	return rep
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
