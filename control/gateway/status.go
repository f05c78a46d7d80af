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
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// givingUp is when a peer that does not answer counts as failed. The trying goes on.
const givingUp = 60 * time.Second

// Status is the gateway's view of itself and its peers now. It never waits.
func (g *Gateway) Status(context.Context) (api.Status, error) {
	now := time.Now()
	run, r := g.running.Load(), g.roster.Load()
	s := api.Status{
		APIVersion: api.Version, Kind: "Status", Gateway: g.ownStatus(run), Peers: []api.PeerStatus{}, Alarms: g.Alarms(),
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
	key := g.publicKey
	s := api.GatewayStatus{
		Name: run.cfg.Name, PublicKey: key.String(), Address: peer.OverlayAddr(key).String(),
		Version: g.opts.Version, ListenPort: g.plane.bind.Port(), StartedAt: g.startedAt.UTC(),
		NAT:        apiNAT(nat),
		Candidates: []api.Candidate{},
	}
	for _, c := range a.Candidates() {
		s.Candidates = append(s.Candidates, api.Candidate{Address: c.Addr.String(), Source: c.Source})
	}
	return s
}

func apiNAT(n discovery.NAT) api.NAT {
	out := api.NAT{Mapping: n.Mapping, Filtering: n.Filtering, PublicAddresses: []string{}}
	for _, a := range n.PublicAddresses {
		out.PublicAddresses = append(out.PublicAddresses, a.String())
	}
	return out
}

// reachability is what was found last in both directions. A fault of this gateway is shown in
// full here, whatever of it is a fault of ours.
func (g *Gateway) reachability(m *member, now time.Time) api.Reachability {
	out, in := verdict.Correlate(now, nil, g.checks.Findings(m.name), g.reports.inbound(m))
	used := verdict.Inside
	if m.mode == api.ModeOutOfBand {
		used = verdict.Outside
	}
	return api.Reachability{Outbound: verdict.Targets(out, used), Inbound: verdict.Targets(in, verdict.Inbound)}
}

func (g *Gateway) peerStatus(m *member, t tunnel.PeerStats, run *running, now time.Time) api.PeerStatus {
	way := g.way(m, t)
	state, reason := peerState(m, way, now)
	if state == api.StateConnecting && way.tried() && now.Sub(lastSign(run.since[m.key], way.heard)) > givingUp {
		state = api.StateFailed
	}
	rx, tx := g.rates.of(m.key)
	s := api.PeerStatus{
		Name: m.name, PublicKey: m.key.String(), Mode: m.mode, State: state, Reason: reason, Stock: m.stock,
		Allow: append([]string{}, m.allow...), Offers: append([]string{}, g.followed(m)...), Local: []api.Local{},
		Path:       g.path(m, way, state, reason),
		Candidates: g.candidateStatus(m, way), Flows: g.flows.List(m.name),
		RxBytes: t.RxBytes, TxBytes: t.TxBytes, RxBytesPerSecond: rx, TxBytesPerSecond: tx,
		LastHandshake: timeOrNil(t.LastHandshake), NextTry: timeOrNil(way.nextTry()),
		Reachability: g.reachability(m, now),
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
	s.User = g.auth.user(m)
	s.Identity = g.keepers.status(m.name)
	return s
}

// lastSign is when a peer was last heard from, or has been tried since.
func lastSign(since, heard time.Time) time.Time {
	if heard.After(since) {
		return heard
	}
	return since
}

// offers are what the peer grants us, by its last hello in this run or the one before.
func (g *Gateway) offers(m *member) []string {
	if h, ok := g.hellos.get(m.key); ok {
		return h.Offers
	}
	return g.store.Observed(m.key).Offers
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
