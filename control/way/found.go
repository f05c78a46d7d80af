package way

import (
	"cmp"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// ends returns the services of both ends, with the names of their checks.
func ends(p *api.PeerStatus) []end {
	return []end{
		{api.DirectionOutbound, "", &p.Reachability.Outbound},
		{api.DirectionInbound, "inbound-", &p.Reachability.Inbound},
	}
}

type end struct {
	direction, prefix string
	targets           *api.Targets
}

// found returns the checks that are relevant to the path to a peer: those about the peer, with
// newer verdicts of status, and those of this gateway on which these depend or that are about
// what the peer may use here. Those nearer to this gateway come last.
func found(p *api.PeerStatus, checks []api.Check) []api.Check {
	var out []api.Check
	for _, e := range ends(p) {
		add := func(target string, v api.Verdict) {
			out = append(out, api.Check{Name: e.prefix + target, Peer: p.Name, Target: target, Direction: e.direction, Verdict: v})
		}
		add(api.ServiceAuth, e.targets.Auth)
		add(api.ServiceAPIServer, e.targets.APIServer)
		add(api.ServiceGateway, e.targets.Gateway)
	}
	needed := map[string]bool{}
	for n := range checks {
		c := &checks[n]
		if c.Peer != p.Name {
			continue
		}
		needed[c.DependsOn] = true
		i := slices.IndexFunc(out, func(o api.Check) bool { return o.Name == c.Name && o.Direction == c.Direction })
		switch {
		case i < 0:
			out = append(out, *c)
		case !checkedAt(&out[i]).After(checkedAt(c)):
			out[i] = *c
		}
	}
	for n := range checks {
		if c := &checks[n]; c.Peer == "" && (needed["own/"+c.Name] || slices.Contains(p.Allow, ServiceOf(c))) {
			out = append(out, *c)
		}
	}
	for i := range out {
		if out[i].DependsOn != "" || out[i].Verdict.Verdict == "" {
			out[i].Verdict.Verdict = api.Unknown
		}
	}
	slices.SortStableFunc(out, func(a, b api.Check) int { return cmp.Compare(position(&b), position(&a)) })
	return out
}

func checkedAt(c *api.Check) time.Time {
	if c.CheckedAt == nil {
		return time.Time{}
	}
	return *c.CheckedAt
}

// position returns the distance of a check's fault from this gateway.
func position(c *api.Check) int {
	return slices.Index([]Kind{Here, NAT, Between, Router, Relay, Far, There, Service}, placeOf(c).at)
}
