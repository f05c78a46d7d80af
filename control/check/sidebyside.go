package check

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// sideBySide makes the verdicts on one service inside and outside the tunnel say what they
// tell together. gateway is the check of the tunnel, which the one inside waits for while
// it is unknown.
//
//	inside   outside      so
//	works    works        all is well
//	works    fails        a firewall, NAT, name or proxy outside; a warning: there is a way
//	fails    works        the server is well: it is the tunnel, the peer's gateway, or what
//	                      that announces
//	fails    fails        alike: one fault, and the outside depends on the inside;
//	                      otherwise: two
//	unknown  works        the server is well, and the gateway's fault stands by itself
//	unknown  no answer    the whole site may be gone: the outside depends on the gateway
//
// Where the way outside is the one that is used, it is the other way round: what fails there
// fails, and the inside is only compared with it.
func sideBySide(inside, outside, gateway Result) (Result, Result) {
	if outside.used {
		return usedOutside(inside, outside)
	}
	switch {
	case inside.troubled() && outside.troubled() && alike(inside, outside):
		inside = inside.beside(catalogue.BesideFails, outside)
		outside = outside.waitFor(inside)
	case inside.failed() && outside.reached():
		inside = inside.beside(catalogue.BesideWorks, outside)
	case inside.reached() && outside.failed():
		outside = outside.beside(catalogue.BesideWorks, inside)
		outside.Verdict.Verdict = api.Warning
	case gateway.failed() && outside.reached():
		inside.Verdict.Cause += fmt.Sprintf("; outside the tunnel it works (%s)", outside.address)
	case gateway.failed() && outside.failed() && outside.unanswered():
		outside = outside.waitFor(gateway)
	}
	return inside, outside
}

// usedOutside is sideBySide for a service that is used outside the tunnel.
func usedOutside(inside, outside Result) (Result, Result) {
	switch {
	case inside.troubled() && outside.troubled() && alike(inside, outside):
		inside = inside.waitFor(outside)
	case outside.failed() && inside.reached():
		outside = outside.beside(catalogue.BesideWorks, inside)
	case inside.failed() && outside.reached():
		inside = inside.beside(catalogue.BesideWorks, outside)
		inside.Verdict.Verdict = api.Warning
	}
	return inside, outside
}

func (r Result) failed() bool { return r.Verdict.Verdict == api.Error }

// troubled reports whether there is something to fix.
func (r Result) troubled() bool { return r.failed() || r.Verdict.Verdict == api.Warning }

// reached reports whether the service answered as it should, if perhaps late or not to
// everything.
func (r Result) reached() bool {
	v := r.Verdict.Verdict
	return v == api.OK || v == api.Warning || catalogue.Code(r.Verdict.Code) == catalogue.APIServerSlow
}

// unanswered reports whether nobody was there, so that nothing tells that the site is.
func (r Result) unanswered() bool {
	failure := r.Params().Failure
	return failure == catalogue.FailureTimeout || failure == catalogue.FailureRoute ||
		slices.Contains([]catalogue.Code{catalogue.AuthTimeout, catalogue.APIServerTimeout}, catalogue.Code(r.Verdict.Code))
}

// alike reports whether two ways to a service fail in the same way: with the same code, or
// by nobody being there. What is behind the second will show when the first is fixed.
func alike(inside, outside Result) bool {
	in, out := catalogue.Code(inside.Verdict.Code), catalogue.Code(outside.Verdict.Code)
	if in == out {
		return true
	}
	down := []catalogue.Code{catalogue.AuthRefused, catalogue.AuthTimeout, catalogue.AuthBroken, catalogue.APIServerRefused, catalogue.APIServerTimeout, catalogue.APIServerBroken}
	unreachable := (out == catalogue.AuthURLUnreachable || out == catalogue.APIServerURLUnreachable) &&
		outside.Params().Failure != catalogue.FailureName && outside.Params().Failure != catalogue.FailureURL
	return slices.Contains(down, in) && (unreachable || slices.Contains(down, out))
}

// beside renders a verdict again with what came of the other way.
func (r Result) beside(b catalogue.Beside, other Result) Result {
	p := r.Params()
	p.Beside, p.BesideAddress = b, other.address
	code := catalogue.Code(r.Verdict.Code)
	r.params = &p
	r.Verdict.Cause, r.Verdict.Fix = catalogue.Render(code, p)
	r.Verdict.Command = catalogue.Command(code, p)
	return r
}

// waitFor makes a verdict depend on another check of the same peer.
func (r Result) waitFor(root Result) Result {
	v := &r.Verdict
	r.DependsOn = root.Name
	v.Verdict, v.Code = api.Unknown, ""
	v.Cause = fmt.Sprintf("not known while %s fails (%s): %s", root.Name, root.Verdict.Code, v.Cause)
	v.Fix, v.Command = fmt.Sprintf("fix %s first: %s", root.Name, root.Verdict.Fix), root.Verdict.Command
	return r
}

// tryOutside begins the checks that the configuration allows outside the tunnel, while
// others are made inside. The function it gives waits for their results; without a URL
// there are none.
func tryOutside(ctx context.Context, n Network, f Facts) (wait func() []Result) {
	var results [2]Result
	var made [2]bool
	var wg sync.WaitGroup
	wg.Go(func() { results[0], made[0] = AuthDirect(ctx, n, f) })
	wg.Go(func() { results[1], made[1] = APIServerDirect(ctx, n, f) })
	return func() []Result {
		wg.Wait()
		var out []Result
		for i, r := range results {
			if made[i] {
				out = append(out, r)
			}
		}
		return out
	}
}

// compared puts each result from outside the tunnel behind the one of the same target
// inside, and lets the two say what they tell together. Auth inside the tunnel issues the
// identity that the API server is shown by either way.
func compared(inside, outside []Result, gateway Result) []Result {
	var out []Result
	var issuer Result
	for _, in := range inside {
		if in.Name == api.ServiceAuth {
			issuer = in
		}
		i := slices.IndexFunc(outside, func(r Result) bool { return r.Target == in.Target })
		if i < 0 {
			out = append(out, in)
			continue
		}
		in, beside := sideBySide(in, outside[i], gateway)
		if beside.used && beside.Target == api.ServiceAuth {
			issuer = beside
		}
		if c := catalogue.Code(beside.Verdict.Code); issuer.failed() && (c == catalogue.IdentityMissing || c == catalogue.IdentityExpired) {
			beside = beside.waitFor(issuer)
		}
		out = append(out, in, beside)
	}
	return out
}
