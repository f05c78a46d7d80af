package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Status returns the current view of the gateway and its peers. It never blocks.
func (g *Gateway) Status(context.Context) (api.Status, error) {
	now := time.Now()
	cfg, r := g.peers.Config(), g.peers.Load()
	s := api.Status{
		APIVersion: api.Version, Kind: "Status", Gateway: g.ownStatus(cfg), Peers: []api.PeerStatus{}, Alarms: g.Alarms(),
	}
	// Fresh, not the loop's: someone who has just joined wants to see it.
	snapshot := g.plane.Engine.Snapshot()
	locals := map[string][]api.Local{}
	for _, l := range g.services.Locals() {
		locals[l.Peer] = append(locals[l.Peer], g.apiLocal(l, now))
	}
	view := verdict.NewView(now, g.checks.Own())
	for _, m := range r.Members() {
		p := g.peerStatus(m, snapshot.Peers[m.Key], now)
		p.Reachability = view.Add(verdict.Peer{Name: m.Name, Outbound: g.checks.Findings(m.Name), Inbound: g.exchange.Inbound(m)}, endpoints(m))
		p.Local = append(p.Local, locals[m.Name]...)
		s.Peers = append(s.Peers, p)
	}
	s.Problems = view.Problems()
	return s, nil
}

// Config returns the effective configuration with the origin of each value.
func (g *Gateway) Config(context.Context) ([]config.Value, error) {
	return g.peers.Config().Values(), nil
}

func (g *Gateway) ownStatus(cfg *config.Resolved) api.GatewayStatus {
	a := g.paths.Agent()
	nat := a.NAT()
	key := g.publicKey
	s := api.GatewayStatus{
		Name: cfg.Name, PublicKey: key.String(), Address: peer.OverlayAddr(key).String(),
		Version: g.opts.Version, ListenPort: g.plane.Bind.Port(), StartedAt: g.startedAt.UTC(), ConfigUndoneAt: g.configUndoneAt(),
		NAT:        paths.ShownNAT(nat),
		Candidates: []api.Candidate{},
	}
	for _, c := range a.Candidates() {
		s.Candidates = append(s.Candidates, api.Candidate{Address: c.Addr.String(), Source: c.Source})
	}
	return s
}

// endpoints maps a target to the check of the endpoint in use.
func endpoints(m *roster.Member) func(target string) string {
	if m.Mode == api.ModeOutOfBand {
		return verdict.Outside
	}
	return verdict.Inside
}

func (g *Gateway) peerStatus(m *roster.Member, t tunnel.PeerStats, now time.Time) api.PeerStatus {
	way := g.paths.Way(m, t)
	state, reason := g.paths.State(m, way, now)
	rx, tx := g.rates.of(m.Key)
	// Where only probes are dropped there is no path, and the tunnel works all the same.
	way.Carries = slices.ContainsFunc(g.checks.Findings(m.Name), func(f verdict.Finding) bool { return f.Code == catalogue.ProbesDropped })
	s := api.PeerStatus{
		Name: m.Name, PublicKey: m.Key.String(), Mode: m.Mode, State: state, Reason: reason, Stock: m.Stock, Labels: m.Labels,
		UnconfirmedSince: timeOrNil(way.Unconfirmed(now)), UndoneAt: timeOrNil(m.UndoneAt.Round(0)),
		Allow: append([]string{}, m.Allow...), Offers: append([]string{}, g.exchange.Followed(m)...), Local: []api.Local{},
		Path:       g.paths.Path(m, way, state, reason, g.echoRTT),
		Candidates: way.Candidates(m), Flows: g.flows.List(m.Name), UDPFlows: g.flows.UDPFlows(m.Name),
		RxBytes: t.RxBytes, TxBytes: t.TxBytes, RxBytesPerSecond: rx, TxBytesPerSecond: tx,
		LastHandshake: timeOrNil(t.LastHandshake), NextTry: timeOrNil(way.NextTry()),
	}
	if a := m.Address(); a.IsValid() {
		s.Address = a.String()
	}
	if h, ok := g.exchange.Hello(m.Key); ok {
		s.Version = h.Software
	}
	if m.Pending {
		s.ApprovalFingerprint = peer.Fingerprint(m.Key)
	}
	s.User = g.auth.User(m)
	s.Identity = g.exchange.Identity(m.Name)
	return s
}

// echoRTT is the round trip of the last echo of a checked peer, in seconds.
func (g *Gateway) echoRTT(peer string) float64 {
	return g.checks.Finding(peer, api.ServiceGateway).RTT.Seconds()
}

func (g *Gateway) apiLocal(l forward.LocalState, now time.Time) api.Local {
	out := api.Local{Service: l.Service, Address: l.Address}
	if l.Err != nil {
		out.Error = l.Err.Error()
	}
	if p, lost := g.lost(l, now); lost {
		cause, steps := catalogue.Render(p.Code, p.Params)
		out.Lost = &api.Verdict{Verdict: catalogue.Severity(p.Code), Confidence: api.Certain, Code: string(p.Code), Cause: cause, Steps: steps, Fix: steps.String(), Command: steps.Command(), CheckedAt: timeOrNil(l.LostAt)}
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
