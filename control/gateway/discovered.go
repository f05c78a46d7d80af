package gateway

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Discovered lists the gateways that were found, and why a search finds none.
func (g *Gateway) Discovered(context.Context) (api.DiscoveredList, error) {
	out := api.DiscoveredList{
		APIVersion: api.Version, Kind: "DiscoveredList", Looking: []string{},
		Gateways: g.discovered(), Problems: g.dns.discoveryProblems(),
	}
	for _, d := range g.dns.domains() {
		out.Looking = append(out.Looking, d.Name)
	}
	return out, nil
}

// discovered are the gateways that were found, whoever found them, by name.
func (g *Gateway) discovered() []api.Discovered {
	out := append([]api.Discovered{}, g.dns.discovered(g.roster.Load(), time.Now())...)
	byName(out)
	return out
}
