package gateway

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/history"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel/peer"
)

// History returns the recent events of peers.
func (g *Gateway) History(_ context.Context, r api.HistoryRequest) (api.History, error) {
	now := time.Now()
	names := g.peers.Load().Names()
	for _, name := range r.Peers {
		if _, err := g.peers.Member(name); err != nil {
			return api.History{}, err
		}
	}
	out := api.History{
		APIVersion: api.Version, Kind: "History", Gateway: g.peers.Config().Name,
		Since: g.history.Since(), From: g.history.Since(), To: now.UTC(), Peers: []api.PeerHistory{},
	}
	if from := now.Add(-r.Since); r.Since > 0 && from.After(out.From) {
		out.From = from.UTC()
	}
	slices.Sort(names)
	for _, name := range names {
		if len(r.Peers) > 0 && !slices.Contains(r.Peers, name) {
			continue
		}
		if p, ok := g.history.Read(name, out.From, now, r.Step); ok {
			out.Peers = append(out.Peers, p)
		}
	}
	return out, nil
}

// seen records the state of a peer.
func (g *Gateway) seen(now time.Time, m *roster.Member, s paths.Seen) {
	if m.Stock && s.State == api.StateConnected {
		s.RTT = g.checks.Finding(m.Name, api.ServiceGateway).RTT
	}
	rx, tx := g.rates.of(m.Key)
	g.history.Observe(now, m.Name, history.Sample{State: s.State, Path: s.Path, RTT: s.RTT, Loss: s.Loss, Rx: rx, Tx: tx})
}

// remember makes the history follow the roster and records joins and key changes. A removed peer's
// history is deleted, and never passes to another peer of the same name.
func (g *Gateway) remember(old, next *roster.Roster) {
	now := time.Now()
	g.history.SetPeers(next.Names())
	for _, m := range old.Without(next) {
		if !m.Succeeded(next) {
			g.history.Forget(m.Name)
			continue
		}
		g.history.Note(m.Name, api.HistoryEvent{
			At: now, Kind: api.EventKey, Event: "the peer has another key", Reason: "its fingerprint is " + peer.Fingerprint(next.ByName(m.Name).Key),
		})
	}
	for _, m := range next.Members() {
		e := api.HistoryEvent{At: now, Kind: api.EventJoined, Event: "joined"}
		switch was := old.ByName(m.Name); {
		case old.Void() || was != nil && (was.Pending == m.Pending || m.Pending):
			continue
		case was != nil:
			e.Event = "approved"
		case m.Pending:
			e.Reason = "it waits for approval"
		}
		g.history.Note(m.Name, e)
	}
}

// judge records the current verdicts on a named peer.
func (g *Gateway) judge(name string) {
	if m := g.peers.Load().ByName(name); m != nil {
		g.judged(m, time.Now())
	}
}

// judged records the verdicts on a peer at a given time.
func (g *Gateway) judged(m *roster.Member, now time.Time) {
	out, in := verdict.Correlate(now, g.checks.Own(), g.checks.Findings(m.Name), g.exchange.Inbound(m))
	r := verdict.Reach(out, in, endpoints(m))
	words := func(t api.Targets) api.Outcomes {
		return api.Outcomes{Auth: t.Auth.Verdict, APIServer: t.APIServer.Verdict, Gateway: t.Gateway.Verdict}
	}
	outbound, inbound := words(r.Outbound), words(r.Inbound)
	outbound.Beside = r.Beside
	var roots []api.HistoryEvent
	for _, f := range slices.Concat(out, in) {
		if b := f.Because; b != nil && b.Direction == api.DirectionOwn {
			f = *b
		}
		again := slices.ContainsFunc(roots, func(e api.HistoryEvent) bool { return e.Check == f.Name && e.Direction == f.Direction })
		if !f.Faulty() || f.Fault() == "" || again {
			continue
		}
		v := f.Verdict()
		roots = append(roots, api.HistoryEvent{
			Code: v.Code, Check: f.Name, Direction: f.Direction, Verdict: f.Outcome,
			Event: cmp.Or(catalogue.Title(f.Code), v.Code), Reason: v.Cause,
		})
	}
	g.history.Judge(now, m.Name, outbound, inbound, roots)
}
