package check

import (
	"fmt"
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// consequence is a row of what follows from this gateway's own faults.
type consequence struct {
	code  catalogue.Code // of the peer's gateway check
	own   string         // our own check that explains it
	holds func(gateway, own Result, f Facts) bool
}

// consequences: a peer that must dial us and cannot is not at fault.
//
//	gateway                            own                    if
//	PST0104 the peer must dial         exposure               nobody can dial this gateway
//	PST0101 never answered             exposure               and nobody can dial the peer either
//	PST0401 neither can be dialled     exposure               the announced address is wrong (PST0403)
//	PST0412 the relay is gone          exposure-turn          always
//	PST0112 packets are lost           resources              our own socket dropped some
func consequences() []consequence {
	closed := func(_, _ Result, f Facts) bool { return f.own.wayIn() != wayOpen }
	return []consequence{
		{catalogue.PeerMustDial, NameExposure, closed},
		{catalogue.PeerSilent, NameExposure, func(g, o Result, f Facts) bool {
			return g.Params().From == "" && closed(g, o, f) && best(f.Candidates, f.Path.PeerNAT, evidence{Facts: f}.networks()) == wayShut
		}},
		{catalogue.NoWayIn, NameExposure, func(_, o Result, _ Facts) bool { return o.Verdict.Code == string(catalogue.PrivateAdvertised) }},
		{catalogue.RelayLost, NameTURN, func(_, _ Result, _ Facts) bool { return true }},
		{catalogue.PacketsLost, NameResources, func(_, o Result, _ Facts) bool { return o.Params().Drops > 0 }},
	}
}

// follow makes the gateway's verdict depend on an own check that explains it. What depends
// on the gateway still does.
func follow(results, own []Result, f Facts) []Result {
	i := slices.IndexFunc(results, func(r Result) bool { return r.Name == api.ServiceGateway })
	if i < 0 || !results[i].faulty() {
		return results
	}
	for _, c := range consequences() {
		if results[i].Verdict.Code != string(c.code) {
			continue
		}
		root, found := (Report{Results: own}).find(c.own)
		if found && root.faulty() && c.holds(results[i], root, f) {
			results = slices.Clone(results)
			results[i] = results[i].waitForOwn(root)
			break
		}
	}
	return results
}

// faulty reports whether a result names a fault.
func (r Result) faulty() bool {
	return r.Verdict.Verdict == api.Error || r.Verdict.Verdict == api.Warning
}

// waitForOwn makes a verdict depend on a check of this gateway.
func (r Result) waitForOwn(root Result) Result {
	r = r.waitFor(root)
	r.DependsOn = ownPrefix + root.Name
	return r
}

// inbound are the checks that the peer made of us, as it reports them. Reports come through
// the tunnel: while that fails, they tell what was.
func inbound(f Facts, results, own []Result) []api.Check {
	told := api.Targets{}
	if f.Inbound != nil {
		told = *f.Inbound
	}
	gateway, checked := (Report{Results: results}).find(api.ServiceGateway)
	broken := checked && (gateway.Verdict.Verdict == api.Error || gateway.Verdict.Verdict == api.Unknown ||
		gateway.Verdict.Code == string(catalogue.AwaitingApproval))
	var out []api.Check
	for _, t := range []struct {
		target string
		v      api.Verdict
	}{{api.ServiceGateway, told.Gateway}, {api.ServiceAuth, told.Auth}, {api.ServiceAPIServer, told.APIServer}} {
		res := Result{Name: nameInbound + t.target, Target: t.target, Verdict: t.v}
		switch {
		case broken:
			res.Verdict = api.Verdict{Verdict: api.Unknown, Via: t.v.Via, CheckedAt: t.v.CheckedAt,
				Code: gateway.Verdict.Code, Cause: f.lastReport()}
			res = res.waitFor(gateway)
			if gateway.DependsOn != "" {
				res.DependsOn, res.Verdict.Fix = gateway.DependsOn, gateway.Verdict.Fix
			}
		case f.Inbound == nil || t.v.Verdict == "":
			res.Verdict = api.Verdict{Verdict: api.Unknown, Cause: f.Name + " has not told yet what it reaches here",
				Fix: "run `postern check` at " + f.Name}
		default:
			res = explained(res, results, own, out)
		}
		if res.Verdict.Stage != "" {
			res.Stages = []Stage{{Name: res.Verdict.Stage, Outcome: res.Verdict.Verdict}}
		}
		out = append(out, res.check(f.Name, api.DirectionInbound))
	}
	return out
}

func (f Facts) lastReport() string {
	if f.Inbound == nil {
		return "reports come through the tunnel, and none has come yet"
	}
	return fmt.Sprintf("reports come through the tunnel, and the last one came %s ago", catalogue.Seconds(f.InboundAge))
}

// explained makes a reported verdict depend on what is known to fail here, or on an
// earlier one of the same report.
func explained(res Result, results, own []Result, before []api.Check) Result {
	if res.faulty() {
		// Both ends of a tunnel see these.
		for _, same := range results {
			if same.faulty() && same.Verdict.Code == res.Verdict.Code &&
				slices.Contains([]catalogue.Code{catalogue.PacketsLost, catalogue.RelayInUse, catalogue.DuplicateKey}, catalogue.Code(res.Verdict.Code)) {
				return res.waitFor(same)
			}
		}
		upstream, found := (Report{Results: own}).find(NameUpstream + res.Target)
		if found && upstream.faulty() {
			return res.waitForOwn(upstream)
		}
	}
	if res.Verdict.Verdict == api.Unknown {
		for _, c := range before {
			if c.Verdict.Verdict == api.Error {
				res.DependsOn = c.Name
				break
			}
		}
	}
	return res
}
