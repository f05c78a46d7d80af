package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// answered is how recent an authenticated answer makes a peer connected, answeredIdle
	// when nothing that was sent since is unanswered (CONTRACT "Status").
	answered     = 45 * time.Second
	answeredIdle = 180 * time.Second
	// givingUp is when a peer that does not answer counts as failed. The trying goes on.
	givingUp = 60 * time.Second
)

// Status is the gateway's view of itself and its peers now. It never waits.
func (g *Gateway) Status(context.Context) (api.Status, error) {
	now := time.Now()
	run, r := g.running.Load(), g.roster.Load()
	s := api.Status{
		APIVersion: api.Version, Kind: "Status", Gateway: g.ownStatus(run), Peers: []api.PeerStatus{},
	}
	// Fresh, not the loop's: who has just joined wants to see it.
	snapshot := g.plane.engine.Snapshot()
	locals := map[string][]api.Local{}
	for _, l := range g.outbound.Locals() {
		locals[l.Peer] = append(locals[l.Peer], apiLocal(l))
	}
	for _, m := range r.members {
		p := g.peerStatus(m, snapshot.Peers[m.key], run, now)
		p.Local = append(p.Local, locals[m.name]...)
		s.Peers = append(s.Peers, p)
	}
	return s, nil
}

// Config is the effective configuration with the origin of each value.
func (g *Gateway) Config(context.Context) ([]config.Value, error) {
	return g.running.Load().cfg.Values(), nil
}

func (g *Gateway) ownStatus(run *running) api.GatewayStatus {
	a := g.agent.Load()
	nat := a.NAT()
	s := api.GatewayStatus{
		Name: run.cfg.Name, PublicKey: g.key.Public().String(), Address: peer.OverlayAddr(g.key.Public()).String(),
		Version: g.opts.Version, ListenPort: g.plane.bind.Port(), StartedAt: g.startedAt.UTC(),
		NAT:        api.NAT{Mapping: nat.Mapping, Filtering: nat.Filtering, PublicAddresses: []string{}},
		Candidates: []api.Candidate{},
	}
	for _, p := range nat.PublicAddresses {
		s.NAT.PublicAddresses = append(s.NAT.PublicAddresses, p.String())
	}
	for _, c := range a.Candidates() {
		s.Candidates = append(s.Candidates, api.Candidate{Address: c.Addr.String(), Source: c.Source})
	}
	return s
}

func (g *Gateway) peerStatus(m *member, t tunnel.PeerStats, run *running, now time.Time) api.PeerStatus {
	state, reason := peerState(m, t, now)
	if state == api.StateConnecting && len(m.candidates) > 0 && now.Sub(lastSign(run.since[m.key], t.LastRx)) > givingUp {
		state = api.StateFailed
	}
	rx, tx := g.rates.of(m.key)
	s := api.PeerStatus{
		Name: m.name, PublicKey: m.key.String(), Mode: m.mode, State: state, Reason: reason, Stock: m.stock,
		Allow: append([]string{}, m.allow...), Offers: append([]string{}, g.offers(m)...), Local: []api.Local{},
		Path:       g.path(m, t, state, reason),
		Candidates: candidateStatus(m, t), Flows: g.flows.List(m.name),
		RxBytes: t.RxBytes, TxBytes: t.TxBytes, RxBytesPerSecond: rx, TxBytesPerSecond: tx,
		LastHandshake: timeOrNil(t.LastHandshake), NextTry: timeOrNil(t.NextTry),
		Reachability: api.Reachability{Outbound: g.checks.Targets(m.name), Inbound: unknownTargets()},
	}
	if a := m.address(); a.IsValid() {
		s.Address = a.String()
	}
	if h, ok := g.hellos.get(m.key); ok {
		s.Version = h.Software
	}
	if m.pending {
		s.ApprovalFingerprint = peer.Fingerprint(m.key)
	}
	if notAfter, ok := g.keepers.notAfter(m.name); ok {
		s.Identity = &api.Identity{NotAfter: notAfter.UTC()}
	}
	return s
}

// peerState sums a peering up, and says why it is not connected.
func peerState(m *member, t tunnel.PeerStats, now time.Time) (api.PeerState, string) {
	if m.pending {
		return api.StatePending, fmt.Sprintf("waits for approval: compare the fingerprint %s with the peer's operator, then run `postern peer approve %s`",
			peer.Fingerprint(m.key), m.name)
	}
	switch {
	case connected(t, now):
		return api.StateConnected, ""
	case !t.LastRx.IsZero():
		return api.StateConnecting, fmt.Sprintf("silent for %s; %d handshakes unanswered since",
			now.Sub(t.LastRx).Round(time.Second), t.Attempts)
	case len(m.candidates) == 0 && !t.Endpoint.IsValid():
		return api.StateConnecting, "has no endpoint here, so it must dial us; nothing came yet"
	}
	return api.StateConnecting, fmt.Sprintf("%d handshakes unanswered so far", t.Attempts)
}

// connected reports whether the peer was heard from recently enough.
func connected(t tunnel.PeerStats, now time.Time) bool {
	silent := now.Sub(t.LastRx)
	return !t.LastRx.IsZero() && (silent <= answered || silent <= answeredIdle && t.Attempts == 0)
}

// lastSign is when a peer was last heard from, or has been tried since.
func lastSign(since, heard time.Time) time.Time {
	if heard.After(since) {
		return heard
	}
	return since
}

// path is the route in use.
func (g *Gateway) path(m *member, t tunnel.PeerStats, state api.PeerState, reason string) api.Path {
	p := api.Path{Kind: api.PathNone, Reason: reason, History: g.journal.of(m.key)}
	if state != api.StateConnected || !t.Endpoint.IsValid() {
		return p
	}
	p.Kind, p.Remote, p.Source = api.PathDirect, t.Endpoint.String(), sourceOf(m, t.Endpoint)
	p.MTU = g.running.Load().cfg.MTU
	if p.MTU == 0 {
		p.MTU = netstack.DefaultMTU
	}
	if n := len(p.History); n > 0 {
		p.Since, p.Reason = &p.History[n-1].At, p.History[n-1].Reason
	}
	p.RTTSeconds = g.checks.Targets(m.name).Gateway.RTTSeconds
	return p
}

// candidateStatus says of each address of the peer what became of it.
func candidateStatus(m *member, t tunnel.PeerStats) []api.Candidate {
	out := apiCandidates(m.candidates)
	found := false
	for i := range out {
		switch {
		case t.Proven && out[i].Address == t.Endpoint.String():
			out[i].State, out[i].Reason, found = "selected", "an authenticated packet came from it", true
		case t.Proven:
			out[i].State, out[i].Reason = "standby", "another address answered; dialled again when that one falls silent"
		case m.pending:
			out[i].State, out[i].Reason = "frozen", "not dialled before the peer is approved"
		default:
			out[i].State, out[i].Reason = "probing", fmt.Sprintf("%d handshakes sent, none answered", t.Attempts)
		}
	}
	if t.Proven && !found {
		out = append(out, api.Candidate{Address: t.Endpoint.String(), Source: api.SourcePeer, State: "selected",
			Reason: "an authenticated packet came from it, though nobody had announced it"})
	}
	return out
}

// offers are what the peer grants us, by its last hello in this run or the one before.
func (g *Gateway) offers(m *member) []string {
	if h, ok := g.hellos.get(m.key); ok {
		return h.Offers
	}
	return g.store.Observed(m.key).Offers
}

// unknownTargets are the verdicts about what only the peer can see: peers do not
// exchange reports yet, and silence is not success.
func unknownTargets() api.Targets {
	v := api.Verdict{Verdict: api.Unknown, Cause: "only the peer can see this, and it has not reported it",
		Fix: "run `postern status` at the peer"}
	return api.Targets{Auth: v, APIServer: v, Gateway: v}
}

func apiLocal(l forward.LocalState) api.Local {
	out := api.Local{Service: l.Service, Address: l.Address}
	if l.Err != nil {
		out.Error = l.Err.Error()
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

// member finds a peer by its name, for a command.
func (g *Gateway) member(name string) (*member, error) {
	r := g.roster.Load()
	if m := r.byName[name]; m != nil {
		return m, nil
	}
	var names []string
	for _, m := range r.members {
		names = append(names, m.name)
	}
	slices.Sort(names)
	hint := "there are no peers yet: `postern invite` makes a ticket for one"
	if len(names) > 0 {
		hint = fmt.Sprintf("the peers are %v", names)
	}
	return nil, admin.NotFound(fmt.Sprintf("no peer %q", name), hint)
}
