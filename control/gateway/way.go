package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// answered is how recent an authenticated answer makes a peer connected, answeredIdle
	// when nothing that was sent since is unanswered.
	answered     = 45 * time.Second
	answeredIdle = 180 * time.Second
)

// way is how a peer is reached at one moment: what the tunnel and, for all but stock
// peers, the path finder know of it.
type way struct {
	tunnel tunnel.PeerStats
	path   path.Snapshot
	// found says that the path finder has the peer.
	found bool
	// unresolved are endpoints of the peer whose names have never been resolved.
	unresolved []discovery.Unresolved
	// servers name our allocations by their TURN servers.
	servers *relays
	// heard is when the peer last gave an authenticated answer, inside the tunnel or to a
	// probe.
	heard time.Time
}

func (g *Gateway) way(m *member, t tunnel.PeerStats) way {
	w := way{tunnel: t, heard: t.LastRx}
	if !m.stock && !m.pending {
		w.path, w.found = g.paths.finder.Snapshot(m.key)
		w.unresolved, w.servers = g.paths.finder.Unresolved(m.key), g.paths.relays.Load()
	}
	w.hear()
	return w
}

// connected reports whether a peer is, as way would have it and without the rest of it.
func (g *Gateway) connected(m *member, now time.Time) bool {
	t, _ := g.plane.engine.Peer(m.key)
	return g.reached(m, t).connected(now)
}

// reached is of way what connected depends on.
func (g *Gateway) reached(m *member, t tunnel.PeerStats) way {
	w := way{tunnel: t, heard: t.LastRx}
	if m.stock || m.pending {
		return w
	}
	var s discovery.Selection
	s, w.found = g.paths.finder.Selected(m.key)
	w.path.Selected, w.path.Heard = s.Path, s.Heard
	w.hear()
	return w
}

// hear takes the path finder's word for when the peer was heard. Probes show that the peer is
// there, but not that the tunnel works: of that a handshake is the proof.
func (w *way) hear() {
	if w.found && !w.tunnel.LastHandshake.IsZero() && w.path.Selected.IsValid() && w.path.Heard.After(w.heard) {
		w.heard = w.path.Heard
	}
}

// tried reports whether there is an address that the peer may be reached at.
func (w way) tried() bool {
	return len(w.path.Candidates)+len(w.unresolved) > 0 || w.tunnel.Endpoint.IsValid() || w.tunnel.Attempts > 0
}

// shown writes a path as operators know it: over a TURN server by its configured address.
// The name of an allocation means nothing outside the tunnel.
func (w way) shown(p peer.Path) string {
	if p.Via == "" {
		return p.Remote.String()
	}
	server := "a relay that is gone"
	if w.servers != nil {
		server = cmp.Or(w.servers.server(p.Via), server)
	}
	return p.Remote.String() + " via " + server
}

// addresses are what is tried to reach the peer.
func (w way) addresses() []string {
	var out []string
	for _, c := range w.path.Candidates {
		out = append(out, w.shown(c.Path))
	}
	for _, u := range w.unresolved {
		out = append(out, u.Name)
	}
	return out
}

func (w way) nextTry() time.Time {
	if w.found && !w.path.Selected.IsValid() && !w.path.NextTry.IsZero() {
		return w.path.NextTry
	}
	return w.tunnel.NextTry
}

// connected reports whether the peer was heard from recently enough.
func (w way) connected(now time.Time) bool {
	silent := now.Sub(w.heard)
	idle := silent <= answeredIdle && w.tunnel.Attempts == 0 && (!w.found || w.path.Selected.IsValid())
	return !w.heard.IsZero() && (silent <= answered || idle)
}

// peerState sums a peering up, and says why it is not connected.
func peerState(m *member, w way, now time.Time) (api.PeerState, string) {
	t := w.tunnel
	switch {
	case m.pending:
		return api.StatePending, fmt.Sprintf("waits for approval: compare the fingerprint %s with the peer's operator, then run `postern peer approve %s`",
			peer.Fingerprint(m.key), m.name)
	case w.connected(now):
		return api.StateConnected, ""
	case w.found && w.path.Selected.IsValid():
		return api.StateConnecting, fmt.Sprintf("%s answers probes but not handshakes (%d unanswered): does it know this gateway's key, and the same preshared key?",
			w.shown(w.path.Selected), t.Attempts)
	case w.path.RelayLost != nil:
		return api.StateConnecting, w.path.RelayLost.String()
	case !w.heard.IsZero():
		return api.StateConnecting, fmt.Sprintf("silent for %s; %d handshakes unanswered since",
			now.Sub(w.heard).Round(time.Second), t.Attempts)
	case w.found && len(w.path.Candidates)+len(w.unresolved) > 0:
		return api.StateConnecting, cmp.Or(w.path.Reason, fmt.Sprintf("%d handshakes unanswered so far", t.Attempts))
	case !w.tried():
		return api.StateConnecting, "has no endpoint here, so it must dial us; nothing came yet"
	}
	return api.StateConnecting, fmt.Sprintf("%d handshakes unanswered so far", t.Attempts)
}

// path is the route in use.
func (g *Gateway) path(m *member, w way, state api.PeerState, reason string) api.Path {
	p := api.Path{Kind: api.PathNone, Reason: reason, History: g.journal.of(m.key)}
	if w.found {
		p.History = story(p.History, w.path.History)
	}
	if state != api.StateConnected {
		return p
	}
	if !w.found {
		return g.stockPath(m, w.tunnel, p)
	}
	if w.path.Kind == path.KindNone {
		p.Reason = cmp.Or(w.path.Reason, p.Reason)
		return p
	}
	p.Kind, p.Remote, p.Source = w.path.Kind, w.path.Selected.Remote.String(), w.path.Source
	p.Relay = g.paths.relays.Load().server(w.path.Selected.Via)
	p.RTTSeconds, p.Since, p.Reason = w.path.RTT.Seconds(), timeOrNil(w.path.Since), w.path.Reason
	p.MTU = g.plane.pathMTU(w.path.MTU)
	return p
}

// story puts what the gateway saw and what the path finder noted in the order of time.
func story(events []api.PathEvent, notes []path.Note) []api.PathEvent {
	for _, n := range notes {
		events = append(events, api.PathEvent{At: n.At.UTC(), Event: n.Event, Reason: n.Reason})
	}
	slices.SortStableFunc(events, func(a, b api.PathEvent) int { return a.At.Compare(b.At) })
	return events
}

// stockPath is the route to a plain WireGuard peer: where it was heard last.
func (g *Gateway) stockPath(m *member, t tunnel.PeerStats, p api.Path) api.Path {
	if !t.Endpoint.IsValid() {
		return p
	}
	p.Kind, p.Remote, p.Source = api.PathDirect, t.Endpoint.String(), sourceOf(m, t.Endpoint)
	p.MTU = cmp.Or(g.running.Load().cfg.MTU, netstack.DefaultMTU)
	if n := len(p.History); n > 0 {
		p.Since, p.Reason = &p.History[n-1].At, p.History[n-1].Reason
	}
	p.RTTSeconds = g.checks.Finding(m.name, api.ServiceGateway).RTT.Seconds()
	return p
}

// candidateStatus says of each address of the peer what became of it.
func (g *Gateway) candidateStatus(m *member, w way) []api.Candidate {
	if !w.found {
		return stockCandidates(m, w.tunnel)
	}
	out := []api.Candidate{}
	for _, c := range w.path.Candidates {
		out = append(out, api.Candidate{
			Address: c.Path.Remote.String(), Source: c.Source, Relay: w.servers.server(c.Path.Via),
			State: c.State.String(), RTTSeconds: c.RTT.Seconds(), Reason: c.Reason,
		})
	}
	for _, u := range w.unresolved {
		out = append(out, api.Candidate{Address: u.Name, Source: api.SourceAdvertised, State: path.Failed.String(), Reason: u.Reason})
	}
	return out
}

// stockCandidates are those of a peer that is not probed.
func stockCandidates(m *member, t tunnel.PeerStats) []api.Candidate {
	out := apiCandidates(m.known())
	found := false
	for i := range out {
		switch {
		case t.Proven && out[i].Address == t.Endpoint.String():
			out[i].State, out[i].Reason, found = "selected", "an authenticated packet came from it", true
		case t.Proven:
			out[i].State, out[i].Reason = "valid", "another address answered; dialled again when that one falls silent"
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
