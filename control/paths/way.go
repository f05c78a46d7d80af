package paths

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/netstack/sender"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// answered is how recent an authenticated answer must be for a peer to count as connected,
	// answeredIdle the same while nothing sent since is unanswered.
	answered     = 45 * time.Second
	answeredIdle = 180 * time.Second
	// unansweredProbes and unansweredData are how long packets may go unanswered before a connected
	// peer is shown as unconfirmed: a few probes, and the echoes that the tunnel sends once data
	// has gone unanswered for 2 s.
	unansweredProbes = 2 * time.Second
	unansweredData   = 3 * time.Second
)

// Way is how a peer is reached at one moment, as the tunnel and, except for stock peers, the path
// finder know it.
type Way struct {
	Tunnel tunnel.PeerStats
	Path   path.Snapshot
	// Found says that the path finder knows the peer.
	Found bool
	// Unresolved are the peer's endpoints whose names have never resolved.
	Unresolved []discovery.Unresolved
	// servers map our allocations to their TURN servers.
	servers *Relays
	// Heard is when the peer last sent an authenticated answer, inside the tunnel or to a probe.
	Heard time.Time
	// Removed is when the peer said that it has removed this gateway; zero if it did not.
	Removed time.Time
	// Carries says that the last check found the tunnel to work although no probe is answered.
	Carries bool
}

// Way returns how a peer is reached now; t is the tunnel's view.
func (p *Finder) Way(m *roster.Member, t tunnel.PeerStats) Way {
	w := Way{Tunnel: t, Heard: t.LastRx}
	if !m.Stock && !m.Pending {
		w.Path, w.Found = p.finder.Snapshot(m.Key)
		w.Unresolved, w.servers = p.finder.Unresolved(m.Key), p.relays()
		w.Removed = p.finder.Sight(m.Key).RemovedAt
	}
	w.hear()
	return w
}

// Connected reports whether a peer is connected, without computing all of Way.
func (p *Finder) Connected(m *roster.Member, now time.Time) bool {
	t, _ := p.tunnel.Peer(m.Key)
	return p.Reached(m, t).Connected(now)
}

// ConnectedSince returns whether a peer is connected, and since when its path is in use, zero if it
// has none, as a stock peer.
func (p *Finder) ConnectedSince(m *roster.Member, now time.Time) (time.Time, bool) {
	t, _ := p.tunnel.Peer(m.Key)
	w := p.Reached(m, t)
	return w.Path.Since, w.Connected(now)
}

// Reached computes the part of Way that Connected depends on.
func (p *Finder) Reached(m *roster.Member, t tunnel.PeerStats) Way {
	w := Way{Tunnel: t, Heard: t.LastRx}
	if m.Stock || m.Pending {
		return w
	}
	var s discovery.Selection
	s, w.Found = p.finder.Selected(m.Key)
	w.Path.Selected, w.Path.Kind, w.Path.RTT, w.Path.Since = s.Path, s.Kind, s.RTT, s.Since
	w.Path.Heard, w.Path.Unanswered, w.Removed = s.Heard, s.Unanswered, s.Removed
	w.hear()
	return w
}

// RoundTrips returns the probes' round trips so far, by peer name.
func (p *Finder) RoundTrips() map[string]path.Trips {
	out := map[string]path.Trips{}
	for _, m := range p.peers.Load().Members() {
		if s, found := p.finder.Selected(m.Key); found && !m.Stock {
			out[m.Name] = s.Trips
		}
	}
	return out
}

// hear adds when the path finder heard the peer. Probes show that the peer is there, but only a
// handshake proves that the tunnel works.
func (w *Way) hear() {
	if w.Found && !w.Tunnel.LastHandshake.IsZero() && w.Path.Selected.IsValid() && w.Path.Heard.After(w.Heard) {
		w.Heard = w.Path.Heard
	}
}

// Tried reports whether there is any address to reach the peer at.
func (w Way) Tried() bool {
	return len(w.Path.Candidates)+len(w.Unresolved) > 0 || w.Tunnel.Endpoint.IsValid() || w.Tunnel.Attempts > 0
}

// Shown formats a path for operators: one over a TURN server by its configured address. The name of
// an allocation means nothing outside the tunnel.
func (w Way) Shown(p peer.Path) string {
	if p.Via == "" {
		return p.Remote.String()
	}
	server := "a relay that is gone"
	if w.servers != nil {
		server = cmp.Or(w.servers.server(p.Via), server)
	}
	return p.Remote.String() + " via " + server
}

// Relay returns the server of the path in use; empty for a direct path.
func (w Way) Relay() string { return w.servers.server(w.Path.Selected.Via) }

// Addresses returns the addresses tried to reach the peer.
func (w Way) Addresses() []string {
	var out []string
	for _, c := range w.Path.Candidates {
		out = append(out, w.Shown(c.Path))
	}
	for _, u := range w.Unresolved {
		out = append(out, u.Name)
	}
	return out
}

// NextTry is when the peer is tried again; zero if nothing is planned.
func (w Way) NextTry() time.Time {
	if w.Found && !w.Path.Selected.IsValid() && !w.Path.NextTry.IsZero() {
		return w.Path.NextTry
	}
	return w.Tunnel.NextTry
}

// Connected reports whether the peer was heard from recently enough and has not removed us.
func (w Way) Connected(now time.Time) bool {
	if w.Removed.After(w.Heard) {
		return false
	}
	silent := now.Sub(w.Heard)
	idle := silent <= answeredIdle && w.Tunnel.Attempts == 0 && (!w.Found || w.Path.Selected.IsValid())
	return !w.Heard.IsZero() && (silent <= answered || idle)
}

// Unconfirmed is since when nothing has shown that a connected peer is still reachable: packets are
// unanswered, or there is no path. It is zero if there is no such doubt.
func (w Way) Unconfirmed(now time.Time) time.Time {
	var since time.Time
	doubt := func(at time.Time, after time.Duration) {
		if !at.IsZero() && now.Sub(at) >= after && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	switch {
	case !w.Connected(now):
		return time.Time{}
	case w.Found && !w.Path.Selected.IsValid() && !w.Carries:
		doubt(w.Path.Since, 0)
	case w.Found:
		doubt(w.Path.Unanswered, unansweredProbes)
	}
	doubt(w.Tunnel.Unanswered, unansweredData)
	return since
}

// proven is when a probe over the address in use was last answered; zero while they are not.
func (w Way) proven(now time.Time) time.Time {
	at := w.Path.Unanswered
	if !w.Path.Selected.IsValid() || !at.IsZero() && now.Sub(at) >= unansweredProbes {
		return time.Time{}
	}
	return w.Path.Answered
}

// PeerState sums up the state of a peering, and says why it is not connected.
func PeerState(m *roster.Member, w Way, now time.Time) (api.PeerState, string) {
	t := w.Tunnel
	switch {
	case m.Pending:
		return api.StatePending, fmt.Sprintf("waits for approval: compare the fingerprint %s with the peer's operator, then run `postern peer approve %s`",
			peer.Fingerprint(m.Key), m.Name)
	case w.Connected(now):
		return api.StateConnected, ""
	case !w.Removed.IsZero():
		return api.StateConnecting, fmt.Sprintf("%s says that this gateway is none of its peers: if that is meant, postern peer remove %s; else join again with a new ticket", m.Name, m.Name)
	case m.Awaited:
		return api.StateConnecting, m.Name + " has yet to approve this gateway: `postern peer approve` there (if join printed a reply, `postern accept` before)"
	case w.Found && w.Path.Selected.IsValid():
		return api.StateConnecting, fmt.Sprintf("%s answers probes, but none of %d handshakes",
			w.Shown(w.Path.Selected), t.Attempts)
	case w.Path.RelayLost != nil:
		return api.StateConnecting, w.Path.RelayLost.String()
	case !w.Heard.IsZero():
		return api.StateConnecting, fmt.Sprintf("silent for %s; %d handshakes unanswered since",
			now.Sub(w.Heard).Round(time.Second), t.Attempts)
	case w.Found && len(w.Path.Candidates)+len(w.Unresolved) > 0:
		return api.StateConnecting, cmp.Or(w.Path.Reason, fmt.Sprintf("%d handshakes unanswered so far", t.Attempts))
	case !w.Tried():
		return api.StateConnecting, "has no endpoint here, so it must dial us; nothing came yet"
	}
	return api.StateConnecting, fmt.Sprintf("%d handshakes unanswered so far", t.Attempts)
}

// givingUp is when a peer that does not answer counts as failed. It is still tried.
const givingUp = 60 * time.Second

// State is PeerState, with a peering that has been tried in vain for long counted as failed.
func (p *Finder) State(m *roster.Member, w Way, now time.Time) (api.PeerState, string) {
	state, reason := PeerState(m, w, now)
	since := p.peers.Since(m.Key)
	if w.Heard.After(since) {
		since = w.Heard
	}
	if state == api.StateConnecting && !m.Awaited && w.Tried() && now.Sub(since) > givingUp {
		state = api.StateFailed
	}
	return state, reason
}

// Path returns the route in use. echoRTT returns the round trip of a stock peer, in seconds.
func (p *Finder) Path(m *roster.Member, w Way, state api.PeerState, reason string, echoRTT func(peer string) float64) api.Path {
	out := api.Path{Kind: api.PathNone, Reason: reason, History: p.journal.of(m.Key)}
	if w.Found {
		out.Proven = sinceOrNil(w.proven(time.Now()))
		out.History = story(out.History, w.Path.History)
	}
	if state != api.StateConnected {
		return out
	}
	if !w.Found {
		return p.stockPath(m, w.Tunnel, out, echoRTT)
	}
	if w.Path.Kind == path.KindNone {
		out.Reason = cmp.Or(w.Path.Reason, out.Reason)
		return out
	}
	out.Kind, out.Remote, out.Source = w.Path.Kind, w.Path.Selected.Remote.String(), w.Path.Source
	out.Relay = p.relays().server(w.Path.Selected.Via)
	out.RTTSeconds, out.Since, out.Reason = w.Path.RTT.Seconds(), sinceOrNil(w.Path.Since), w.Path.Reason
	out.MTU = p.plane.PathMTU(w.Path.MTU)
	out.Traffic = p.traffic(m)
	return out
}

// traffic returns what connections to a peer show about its path; nil if nothing is known.
func (p *Finder) traffic(m *roster.Member) *api.Traffic {
	s, ok := p.plane.Stack.PathState(m.Overlay)
	if !ok {
		return nil
	}
	t := &api.Traffic{
		Connections: s.Connections, BytesPerSecond: s.Rate, PolicedBytesPerSecond: s.Policed,
		RTTSeconds: s.RTT.Seconds(), BaseRTTSeconds: s.BaseRTT.Seconds(),
		LossRatio: s.Loss, QueueLossRatio: s.Congested, LossSample: s.Sample,
		InFlightBytes: s.InFlight, WindowBytes: s.Window, IdleSeconds: s.Idle.Seconds(),
	}
	if s.Limit != sender.LimitNone {
		t.LimitedBy = s.Limit.String()
	}
	return t
}

// story merges the gateway's events and the path finder's notes in time order.
func story(events []api.PathEvent, notes []path.Note) []api.PathEvent {
	for _, n := range notes {
		events = append(events, api.PathEvent{At: n.At.UTC(), Event: n.Event, Reason: n.Reason})
	}
	slices.SortStableFunc(events, func(a, b api.PathEvent) int { return a.At.Compare(b.At) })
	return events
}

// stockPath is the route to a plain WireGuard peer: where it was heard last.
func (p *Finder) stockPath(m *roster.Member, t tunnel.PeerStats, out api.Path, echoRTT func(peer string) float64) api.Path {
	if !t.Endpoint.IsValid() {
		return out
	}
	out.Kind, out.Remote, out.Source = api.PathDirect, t.Endpoint.String(), sourceOf(m, t.Endpoint)
	out.MTU = p.plane.MTU
	if n := len(out.History); n > 0 {
		out.Since, out.Reason = &out.History[n-1].At, out.History[n-1].Reason
	}
	out.RTTSeconds = echoRTT(m.Name)
	out.Traffic = p.traffic(m)
	return out
}

func sinceOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Candidates returns each address of the peer with its state.
func (w Way) Candidates(m *roster.Member) []api.Candidate {
	if !w.Found {
		return stockCandidates(m, w.Tunnel)
	}
	out := []api.Candidate{}
	for _, c := range w.Path.Candidates {
		out = append(out, api.Candidate{
			Address: c.Path.Remote.String(), Source: c.Source, Relay: w.servers.server(c.Path.Via),
			State: c.State.String(), RTTSeconds: c.RTT.Seconds(), Reason: c.Reason,
		})
	}
	for _, u := range w.Unresolved {
		out = append(out, api.Candidate{Address: u.Name, Source: api.SourceAdvertised, State: path.Failed.String(), Reason: u.Reason})
	}
	return out
}

// stockCandidates returns the candidates of a peer that is not probed.
func stockCandidates(m *roster.Member, t tunnel.PeerStats) []api.Candidate {
	out := []api.Candidate{}
	for _, c := range m.Known() {
		out = append(out, api.Candidate{Address: c.Addr.String(), Source: c.Source})
	}
	found := false
	for i := range out {
		switch {
		case t.Proven && out[i].Address == t.Endpoint.String():
			out[i].State, out[i].Reason, found = "selected", "an authenticated packet came from it", true
		case t.Proven:
			out[i].State, out[i].Reason = "valid", "another address answered; dialled again when that one falls silent"
		case m.Pending:
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
