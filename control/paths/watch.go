package paths

import (
	"maps"
	"math"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Watch notices changes in the state of peers. One goroutine uses it.
type Watch struct {
	p *Finder
	// states, doubts and stats are those of the last look; doubts holds the unconfirmed peers.
	states map[peer.PublicKey]api.PeerState
	doubts map[peer.PublicKey]bool
	stats  map[peer.PublicKey]tunnel.PeerStats
	// carried are the bytes of each peer's open connections.
	carried map[peer.PublicKey]uint64
	// kept are the endpoints stored for the next start, unkept those that failed to be stored and
	// were logged.
	kept, unkept map[peer.PublicKey]netip.AddrPort
	// keeping are the endpoints to store in this look.
	keeping map[peer.PublicKey]netip.AddrPort
	// remembered is when announcements were last stored.
	remembered time.Time
}

// NewWatch returns a Watch that has seen no peer yet.
func (p *Finder) NewWatch() *Watch {
	return &Watch{
		p: p, states: map[peer.PublicKey]api.PeerState{}, doubts: map[peer.PublicKey]bool{}, stats: map[peer.PublicKey]tunnel.PeerStats{}, carried: map[peer.PublicKey]uint64{},
		kept: map[peer.PublicKey]netip.AddrPort{}, unkept: map[peer.PublicKey]netip.AddrPort{}, keeping: map[peer.PublicKey]netip.AddrPort{},
	}
}

// Look evaluates the tunnel's state and the traffic of connections, by peer name. It is called
// every second or two.
func (w *Watch) Look(now time.Time, s tunnel.Snapshot, flows map[string]forward.Carried) {
	r := w.p.peers.Load()
	for k := range w.stats {
		if r.ByKey(k) == nil {
			delete(w.stats, k)
			delete(w.states, k)
			delete(w.doubts, k)
			delete(w.kept, k)
			delete(w.unkept, k)
			delete(w.carried, k)
		}
	}
	for _, m := range r.Members() {
		if t, ok := s.Peers[m.Key]; ok {
			w.observe(now, m, t, flows[m.Name])
		}
	}
	w.keep(now)
	if now.Sub(w.remembered) >= roster.RememberEvery {
		w.remembered = now
		w.p.Remember()
	}
}

// observe notices what changed about one peer since the last look.
func (w *Watch) observe(now time.Time, m *roster.Member, after tunnel.PeerStats, flows forward.Carried) {
	p, before := w.p, w.stats[m.Key]
	w.stats[m.Key] = after
	switch {
	case after.LastHandshake.Equal(before.LastHandshake):
	case before.LastHandshake.IsZero():
		p.log.Info("first handshake with peer", "peer", m.Name, "endpoint", after.Endpoint.String())
		p.o.Tell.Moved(m.Name)
	default:
		p.o.Tell.Shook(m.Name)
	}
	if m.Stock && after.Proven && (after.Endpoint != before.Endpoint || !before.Proven) {
		p.happened(m, now, "direct", pathReason(m, before, after))
	}
	// The gateway's own messages to a peer, mostly checks, are not traffic. Nobody waits for them,
	// and they are so frequent that no path would ever be idle.
	if flows.Bytes != w.carried[m.Key] || flows.Flows > 0 && unanswered(before, after) {
		p.finder.Traffic(m.Key)
	}
	w.carried[m.Key] = flows.Bytes
	if w.kept[m.Key] != after.Endpoint && p.lasting(m, after) && p.peers.MayStore(m, now) {
		w.keeping[m.Key] = after.Endpoint
	}
	w.follow(now, m, after)
}

// unanswered reports whether the tunnel only sent: connections retransmit when their path is dead.
func unanswered(before, after tunnel.PeerStats) bool {
	return after.TxBytes > before.TxBytes && after.RxBytes == before.RxBytes
}

// lasting reports whether a peer was heard at its own address, which is worth storing. An address
// on a relay disappears with its allocation, and must not be taken for a direct path in the next
// run.
func (p *Finder) lasting(m *roster.Member, t tunnel.PeerStats) bool {
	if !t.Proven || t.Path.Via != "" {
		return false
	}
	s, found := p.finder.Snapshot(m.Key)
	return !found || s.Kind == path.KindDirect && s.Selected == t.Path
}

// keep stores where peers were heard, in one write, for the next start. A failure is retried on
// each turn but logged only once.
func (w *Watch) keep(now time.Time) {
	if len(w.keeping) == 0 {
		return
	}
	defer clear(w.keeping)
	var err error
	w.p.peers.LearnAll(func(r *roster.Roster) {
		maps.DeleteFunc(w.keeping, func(k peer.PublicKey, _ netip.AddrPort) bool { return r.ByKey(k) == nil })
		err = w.p.o.Store.AllProven(w.keeping, now)
	})
	for k, endpoint := range w.keeping {
		if err == nil {
			w.kept[k] = endpoint
			continue
		}
		if w.unkept[k] != endpoint {
			w.unkept[k] = endpoint
			w.p.log.Warn("failed to store a peer's endpoint; after a restart it may have to dial us",
				"peer", w.p.peers.NameOf(k), "error", err)
		}
	}
}

// follow notices that a peer came or went. Going is a matter of time alone: a silent peer changes
// nothing.
func (w *Watch) follow(now time.Time, m *roster.Member, t tunnel.PeerStats) {
	p, was := w.p, w.states[m.Key]
	is, reason := api.StateConnected, ""
	reached := p.Reached(m, t)
	if m.Pending || !reached.Connected(now) {
		is, reason = p.State(m, p.Way(m, t), now)
	}
	doubt := !reached.Unconfirmed(now).IsZero()
	if is != was || doubt != w.doubts[m.Key] {
		p.o.Tell.State()
	}
	w.states[m.Key], w.doubts[m.Key] = is, doubt
	p.o.Tell.Seen(now, m, p.seen(m, reached, is, doubt))
	switch {
	case is == was:
	case is == api.StateConnected:
		p.log.Info("peer is connected", "peer", m.Name, "endpoint", t.Endpoint.String())
		p.o.Tell.Moved(m.Name)
	case was == api.StateConnected:
		p.happened(m, now, "lost", reason)
		p.log.Warn("peer is silent", "peer", m.Name, "reason", reason, "endpoint", t.Endpoint.String())
		p.o.Tell.Moved(m.Name)
	}
}

// Seen is the state of a peer at one moment.
type Seen struct {
	// State is the state shown to users.
	State api.PeerState
	// Path is direct, relay or none.
	Path string
	RTT  time.Duration // of probes; 0 = unknown
	Loss float64       // the share of packets that connections lose; NaN = unknown
}

// seen returns how a peer is reached, as in its status.
func (p *Finder) seen(m *roster.Member, w Way, is api.PeerState, doubt bool) Seen {
	s := Seen{State: is, Path: api.PathNone, Loss: math.NaN()}
	if is != api.StateConnected {
		return s
	}
	if doubt {
		s.State = api.StateUnconfirmed
	}
	switch {
	case w.Found:
		s.Path, s.RTT = w.Path.Kind, w.Path.RTT
	case w.Tunnel.Endpoint.IsValid():
		s.Path = api.PathDirect
	}
	if t, ok := p.plane.Stack.PathState(m.Overlay); ok && t.Sample > 0 {
		s.Loss = t.Loss
	}
	return s
}

// pathReason explains the current endpoint in words.
func pathReason(m *roster.Member, before, after tunnel.PeerStats) string {
	source := sourceOf(m, after.Endpoint)
	if before.Proven {
		return "the peer answers from " + after.Endpoint.String() + " (" + source + ") now, before from " + before.Endpoint.String()
	}
	return "first authenticated answer came from " + after.Endpoint.String() + " (" + source + ")"
}

// sourceOf returns where a peer's address is known from: peer-reflexive if nobody announced it.
func sourceOf(m *roster.Member, a netip.AddrPort) string {
	for _, c := range m.Known() {
		if c.Addr == a && c.Source != "" {
			return c.Source
		}
	}
	return api.SourcePeer
}

// keepEndpoints stores where peers were last heard, in case no look has done so: a peer that dials
// us can be found again only there.
func (p *Finder) keepEndpoints() {
	r := p.peers.Load()
	for k, t := range p.tunnel.Snapshot().Peers {
		m := r.ByKey(k)
		if m == nil || !p.lasting(m, t) {
			continue
		}
		if err := p.o.Store.Proven(k, t.Endpoint, time.Now()); err != nil {
			p.log.Warn("failed to store a peer's endpoint; after a restart it may have to dial us",
				"peer", m.Name, "error", err)
		}
	}
}
