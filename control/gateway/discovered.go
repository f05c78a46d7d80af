package gateway

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Discovered lists the gateways that were found, and why a search finds none.
func (g *Gateway) Discovered(context.Context) (api.DiscoveredList, error) {
	out := api.DiscoveredList{
		APIVersion: api.Version, Kind: "DiscoveredList", Looking: []string{},
		Name: g.peers.Config().Name, Fingerprint: peer.Fingerprint(g.publicKey),
		AnnouncedAs: g.lan.announcedAs(), Gateways: g.discovered(),
		Problems: append(g.lan.discoveryProblems(time.Now()), g.dns.discoveryProblems()...),
	}
	out.Looking = append(out.Looking, g.lan.looking(time.Now())...)
	for _, d := range g.dns.domains() {
		out.Looking = append(out.Looking, d.Name)
	}
	return out, nil
}

// discovered are the gateways that were found, whoever found them, by name.
func (g *Gateway) discovered() []api.Discovered {
	r, now := g.peers.Load(), time.Now()
	out := append(append([]api.Discovered{}, g.lan.discovered(r, now)...), g.dns.discovered(r, now)...)
	for i := range out {
		d := &out[i]
		if as := peerName(d.Name.RawUnsafe()); as != d.Name.RawUnsafe() {
			d.As = as
		}
		if m := r.ByName(d.Peer); d.State == api.DiscoveredPeer && m != nil && !g.connected(m, now) {
			d.State = api.DiscoveredApproved
		}
	}
	byName(out)
	return out
}
