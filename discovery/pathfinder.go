package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/probe"
	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

// PathfinderOptions configure a [Pathfinder]. PrivateKey, BootID, Send and Route are required.
//
// [Pathfinder.Run] calls the callbacks without locks, one at a time and in order;
// [Pathfinder.HandleSTUN] also calls Send, for answers, and so does [Pathfinder.Probe]. None may
// block for long.
type PathfinderOptions struct {
	PrivateKey peer.PrivateKey
	// BootID grows with every start of the gateway.
	BootID uint64
	// Send sends a probe. A ttl of 0 means the system's default.
	Send func(packet []byte, to peer.Path, ttl int, dontFragment bool) error
	// Route is called when the tunnel's paths to a peer change.
	Route func(k peer.PublicKey, r path.Routing)
	// Handshake starts a new WireGuard handshake with a peer; it may be nil.
	Handshake func(k peer.PublicKey)
	// Tell sends a message to the peer's path finder, in-band and in order. It may fail silently.
	// nil = not supported.
	Tell func(k peer.PublicKey, m path.Message)
	// Permit is called when the addresses change that our own allocations must let in; nil = no
	// relays.
	Permit func(addrs []netip.Addr)
	// CheckRelays checks whether our own allocations still exist, because a relayed path is in
	// doubt; nil = no relays.
	CheckRelays func()
	// Local returns what this side offers, see [Agent.Local]. [Pathfinder.LocalChanged] makes it be
	// called again.
	Local func() path.Local
	// Own returns all addresses of this host, at which no announced candidate is dialled; nil =
	// Local's Hosts. While it fails no announced candidate is dialled at all.
	Own func() ([]netip.Addr, error)
	// Forbidden are ranges in which no announced candidate is dialled: those of this cluster's pods
	// and Services. [Pathfinder.SetForbidden] replaces them.
	Forbidden []netip.Prefix
	// Resolve resolves a name; nil = the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Keepalive is the interval of packets on an idle path; 0 = 20 s. See [path.Options].
	Keepalive time.Duration
	// OverlayMTU is the tunnel's, in bytes; 0 = 1420. See [path.Options].
	OverlayMTU int
	// OnSuperseded is called, repeatedly, when a peer has heard a later start of a gateway with our
	// own key; it must not block. It may be nil.
	OnSuperseded func(k peer.PublicKey, boot uint64)
	// OnRemoved is called when a peer says that it has removed this gateway; it must not block. It
	// may be nil.
	OnRemoved func(k peer.PublicKey)
	// Noted is called with additions to the history of a peer's path; it must not block. It may be
	// nil.
	Noted func(k peer.PublicKey, n path.Note)
	// Logger logs every change of a path; nil = discard.
	Logger *slog.Logger
}

// PathPeer is a peer to find paths to.
type PathPeer struct {
	Key          peer.PublicKey
	PresharedKey peer.PresharedKey
	// Name is the peer's name, for logs.
	Name string
	// Candidates are those of the ticket or the configuration. They are trusted, unless no host can
	// have such an address.
	Candidates []Candidate
	// Announced are candidates that the peer announced earlier: when it joined, or in the last run.
	// They are used if they may be dialled ([Dialable]). Later announcements come through
	// [Pathfinder.Receive].
	Announced []Candidate
	// Order is the order in which addresses are preferred within a class of paths, 0 (also the
	// default) first: see [path.Machine.SetOrder].
	Order map[netip.AddrPort]uint8
	// Names are further addresses, "host:port", that are resolved repeatedly.
	Names []string
}

// Pathfinder finds and keeps the paths to all peers while [Pathfinder.Run] runs: it drives a
// [path.Machine] for each over a [probe.Prober]. Its methods are safe for concurrent use and do not
// block, except Run and [Pathfinder.Probe].
type Pathfinder struct {
	o      PathfinderOptions
	own    peer.PublicKey
	prober *probe.Prober
	log    *slog.Logger
	epoch  time.Time // of the machines' beats

	running atomic.Bool
	wake    wake.Signal
	slots   chan struct{} // bounds concurrent resolutions

	setting sync.Mutex // one SetPeers at a time

	mu         sync.Mutex // guards the following and the machines; not held while sending, resolving or calling back
	peers      map[peer.PublicKey]*pathPeer
	generation uint64 // counts calls of SetPeers
	queue      deadlines
	local      path.Local
	localKnown bool
	localDue   bool
	hosts      []netip.Addr // where no announced candidate may be
	hostsKnown bool
	forbidden  []netip.Prefix
	permitted  []netip.Addr
	permitDue  bool
	pings      map[stunwire.TxID]*ping
	counts     ProbeCounts
	searches   path.Searches
}

// ProbeCounts are counts of probes since the start.
type ProbeCounts struct {
	Sent, Unsent uint64 // our requests
	Answers      uint64 // to them
	Requests     uint64 // from peers, and answered
	Refused      uint64 // forged, replayed, stale or from an address that must not be answered
	Undialable   uint64 // announced candidates that were left out
}

// maxResolving bounds concurrent resolutions.
const maxResolving = 16

// NewPathfinder returns a pathfinder without peers.
func NewPathfinder(o PathfinderOptions) (*Pathfinder, error) {
	if o.Send == nil || o.Route == nil {
		return nil, errors.New("discovery: Send and Route are required")
	}
	prober, err := probe.New(o.PrivateKey, o.BootID, nil)
	if err != nil {
		return nil, fmt.Errorf("path finder: %w", err)
	}
	if o.Handshake == nil {
		o.Handshake = func(peer.PublicKey) {}
	}
	if o.Tell == nil {
		o.Tell = func(peer.PublicKey, path.Message) {}
	}
	if o.Permit == nil {
		o.Permit = func([]netip.Addr) {}
	}
	if o.CheckRelays == nil {
		o.CheckRelays = func() {}
	}
	if o.Local == nil {
		o.Local = func() path.Local { return path.Local{} }
	}
	if o.Resolve == nil {
		o.Resolve = resolveBySystem
	}
	f := &Pathfinder{
		o: o, own: o.PrivateKey.Public(), prober: prober, log: o.Logger, epoch: time.Now(),
		wake: wake.New(), slots: make(chan struct{}, maxResolving),
		peers: make(map[peer.PublicKey]*pathPeer), localDue: true, forbidden: o.Forbidden, pings: make(map[stunwire.TxID]*ping),
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	return f, nil
}

// SetPeers replaces the peers, by difference: unchanged ones are not disturbed. The error names the
// peers that are invalid; the others are set.
func (f *Pathfinder) SetPeers(peers []PathPeer) error {
	keys := make([]probe.Peer, len(peers))
	for i, p := range peers {
		keys[i] = probe.Peer{Key: p.Key, PresharedKey: p.PresharedKey}
	}
	f.setting.Lock()
	defer f.setting.Unlock()
	errs := []error{f.prober.SetPeers(keys)} // costs a scalar multiplication for each new key
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.generation++
	for _, c := range peers {
		p := f.peers[c.Key]
		if p == nil {
			p = f.addLocked(now, c)
		}
		p.generation = f.generation
		due, err := p.configure(now, c, f.refusedLocked)
		if err != nil {
			errs = append(errs, fmt.Errorf("peer %s: %w", c.Name, err))
		}
		if due {
			f.dueLocked(p, now) // only this one, or a new one of a thousand would wait for the others
		}
	}
	for _, p := range f.peers {
		if p.generation != f.generation {
			f.removeLocked(p)
		}
	}
	f.wake.Set()
	return errors.Join(errs...)
}

func (f *Pathfinder) addLocked(now time.Time, c PathPeer) *pathPeer {
	p := &pathPeer{key: c.Key, m: path.New(path.Options{
		Low: bytes.Compare(f.own[:], c.Key[:]) < 0, Boot: f.o.BootID, Keepalive: f.o.Keepalive, Searches: &f.searches,
		Epoch: f.epoch, OverlayMTU: f.o.OverlayMTU,
	})}
	if f.localKnown {
		p.m.SetLocal(now, f.local)
	}
	f.peers[c.Key] = p
	f.queue.add(p)
	return p
}

func (f *Pathfinder) removeLocked(p *pathPeer) {
	delete(f.peers, p.key)
	f.searches.Leave(p.m)
	f.queue.remove(p)
	f.permitDue = f.permitDue || len(p.permit) > 0
}

// refusedLocked says why an announced address is not dialled.
func (f *Pathfinder) refusedLocked(a netip.AddrPort) string {
	if !f.hostsKnown {
		return "the addresses of this host are not known"
	}
	return Dialable(a, f.hosts, f.forbidden)
}

// dueLocked schedules a poll of a peer's machine. It reports whether Run must be woken, because
// nothing else is due before.
func (f *Pathfinder) dueLocked(p *pathPeer, at time.Time) (first bool) {
	if !at.Before(p.due) {
		return false
	}
	f.queue.set(p, at)
	return f.queue[0] == p
}

// input passes an input to a peer's machine, which is polled at once.
func (f *Pathfinder) input(k peer.PublicKey, tell func(now time.Time, m *path.Machine)) {
	f.inputOn(k, peer.Path{}, tell)
}

// inputOn passes a probe or an answer on a path to a peer's machine. If that is the path in use to
// a resting peer, the machine is polled at the next beat, together with everything that comes until
// then.
func (f *Pathfinder) inputOn(k peer.PublicKey, over peer.Path, tell func(now time.Time, m *path.Machine)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.peers[k]
	if p == nil {
		return
	}
	now := time.Now()
	tell(now, p.m)
	at := now
	if over.IsValid() && over == p.selected && p.m.Resting() {
		at = now.Add(path.Beat - now.Sub(f.epoch)%path.Beat)
	}
	if f.dueLocked(p, at) {
		f.wake.Set()
	}
}

// HandshakeDone reports that a handshake with a peer completed on a path.
func (f *Pathfinder) HandshakeDone(k peer.PublicKey, over peer.Path) {
	f.input(k, func(now time.Time, m *path.Machine) { m.HandshakeDone(now, over) })
}

// Silent reports that a peer does not answer what the tunnel sends on the selected path.
func (f *Pathfinder) Silent(k peer.PublicKey) {
	f.input(k, func(now time.Time, m *path.Machine) { m.Silent(now) })
}

// Doubt tells that something sent to a peer has no answer yet: its path is probed at once, and its names
// are resolved again, since it may have moved.
func (f *Pathfinder) Doubt(k peer.PublicKey) {
	f.mu.Lock()
	if p := f.peers[k]; p != nil {
		p.resolveSoon(time.Now(), func(n *name) bool { return n.failures == 0 })
	}
	f.mu.Unlock()
	f.input(k, func(now time.Time, m *path.Machine) { m.Doubt(now) })
}

// Reprobe tells that the tunnel to a peer carries data although no probe is answered: its paths are
// probed at once.
func (f *Pathfinder) Reprobe(k peer.PublicKey) {
	f.input(k, func(now time.Time, m *path.Machine) { m.Reprobe(now) })
}

// Traffic reports that the tunnel carried more than keepalives for a peer since the last call. Once
// a second is enough.
func (f *Pathfinder) Traffic(k peer.PublicKey) {
	f.input(k, func(now time.Time, m *path.Machine) { m.Traffic(now) })
}

// SetForbidden replaces the ranges in which no announced candidate is dialled. Candidates announced
// in this run are checked again when the peer announces again.
func (f *Pathfinder) SetForbidden(ranges []netip.Prefix) {
	f.mu.Lock()
	f.forbidden = slices.Clone(ranges)
	f.localDue = true // checks the known ones again
	f.mu.Unlock()
	f.wake.Set()
}

// LocalChanged reports that [PathfinderOptions].Local has changed.
func (f *Pathfinder) LocalChanged() {
	f.mu.Lock()
	f.localDue = true
	f.mu.Unlock()
	f.wake.Set()
}

// NetworkChanged reports that our own addresses changed or that the process was suspended: every
// path is proven again, and names are resolved again.
func (f *Pathfinder) NetworkChanged() {
	f.prober.Rotate() // so that nobody can link the new address to the old one
	f.mu.Lock()
	now := time.Now()
	f.localDue = true
	for _, p := range f.peers {
		p.m.NetworkChanged(now)
		p.resolveSoon(now, anyName)
		f.dueLocked(p, now)
	}
	f.mu.Unlock()
	f.wake.Set()
}

// Snapshot returns what is known about the path to the peer; false if it is not ours. If there is
// no candidate because no name could be resolved, that is the reason given.
func (f *Pathfinder) Snapshot(k peer.PublicKey) (path.Snapshot, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.peers[k]
	if p == nil {
		return path.Snapshot{}, false
	}
	s := p.m.Snapshot()
	if missing := p.unresolved(); len(missing) > 0 && !s.Selected.IsValid() && len(s.Candidates) == 0 {
		s.Reason, s.NextTry = missing[0].Name+" "+missing[0].Reason, missing[0].Next
	}
	return s, true
}

// Selection is the part of [path.Snapshot] about the path in use, and when the peer was heard.
type Selection struct {
	Path  peer.Path // invalid = none
	Kind  string
	RTT   time.Duration
	Since time.Time // when it, or none, was selected
	MTU   int
	Heard time.Time // on any path
	// Unanswered is since when probes on the path are unanswered; zero if they are answered.
	Unanswered time.Time
	// Removed is when the peer said that it has removed us; see [Sighting].
	Removed time.Time
	// Trips are the round trips of probes so far.
	Trips path.Trips
	// Interruptions are those of the path that come at regular intervals.
	Interruptions path.Interruptions
}

// Selected returns the path in use; false if the peer is not ours. It costs less than a Snapshot,
// for callers that ask about all peers repeatedly.
func (f *Pathfinder) Selected(k peer.PublicKey) (Selection, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.peers[k]
	if p == nil {
		return Selection{}, false
	}
	s := p.m.Selection()
	return Selection{Path: s.Selected, Kind: s.Kind, RTT: s.RTT, Since: s.Since, MTU: s.MTU, Heard: s.Heard, Unanswered: s.Unanswered, Removed: p.sight.removedAt, Trips: s.Trips, Interruptions: s.Interruptions}, true
}

// Unresolved lists a peer's endpoints whose names have never been resolved.
func (f *Pathfinder) Unresolved(k peer.PublicKey) []Unresolved {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.peers[k]; p != nil {
		return p.unresolved()
	}
	return nil
}

// Counts returns the probes so far.
func (f *Pathfinder) Counts() ProbeCounts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// permitLocked returns the union of the addresses that the machines want permitted, and whether it
// changed. Relays limit the number and take the first: so the first of each peer come before the
// second of any.
func (f *Pathfinder) permitLocked() ([]netip.Addr, bool) {
	if !f.permitDue {
		return nil, false
	}
	f.permitDue = false
	peers := slices.Collect(maps.Values(f.peers))
	slices.SortFunc(peers, func(a, b *pathPeer) int { return bytes.Compare(a.key[:], b.key[:]) })
	all, seen := []netip.Addr{}, make(map[netip.Addr]bool)
	for n, more := 0, true; more; n++ {
		more = false
		for _, p := range peers {
			if n >= len(p.permit) {
				continue
			}
			more = true
			if a := p.permit[n]; !seen[a] {
				seen[a] = true
				all = append(all, a)
			}
		}
	}
	if slices.Equal(all, f.permitted) {
		return nil, false
	}
	f.permitted = all
	return slices.Clone(all), true
}
