package underlay

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
)

const candidatesPrefix = "peer:"

// fanOut is the endpoint peer:ID. Its identity is stable while its paths change.
type fanOut struct {
	id      string
	changed func() // called when its paths have changed
	managed atomic.Bool

	// Where initiations and data go; replaced as a whole, under mu.
	targets atomic.Pointer[[]conn.Endpoint]
	data    atomic.Pointer[conn.Endpoint]

	mu       sync.Mutex
	selected conn.Endpoint // as set by SetSelected, nil for none
	learned  conn.Endpoint // as proved by the last handshake, nil for none
	// paths is the union of all of these, as of the last change.
	paths map[peer.Path]struct{}

	exchange exchange
}

var _ conn.Endpoint = (*fanOut)(nil)

// Manage declares the endpoint peer:ID of a managed peer, which keeps it for good, before any path
// is known. Data goes on the path of SetSelected, and responses to where the initiation came from.
// It exists until Forget.
func (b *Bind) Manage(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fanOut(id).managed.Store(true)
}

// Forget removes the endpoint peer:ID; endpoints already parsed from it send nowhere.
func (b *Bind) Forget(id string) {
	b.mu.Lock()
	f := b.candidates[id]
	delete(b.candidates, id)
	b.mu.Unlock()
	if f == nil {
		return
	}
	f.managed.Store(false)
	f.setTargets(nil)
	f.setSelected(nil)
	f.setLearned(nil)
	b.handshakes.forget(f)
}

// SetCandidates sets the paths of the endpoint peer:ID that initiations are sent on, best first.
// Duplicates, unusable addresses (unspecified, multicast, port 0) and all beyond [peer.MaxPaths] are
// left out. Without paths the ID is forgotten, unless it is managed.
func (b *Bind) SetCandidates(id string, paths []peer.Path) {
	targets := make([]conn.Endpoint, 0, min(len(paths), peer.MaxPaths))
	seen := make(map[peer.Path]bool, len(paths))
	for _, p := range paths {
		p.Remote = unmapped(p.Remote)
		if len(targets) == peer.MaxPaths {
			break
		}
		if !usable(p.Remote) || seen[p] {
			continue
		}
		seen[p] = true
		targets = append(targets, b.endpointOf(p))
	}
	b.mu.Lock()
	if b.candidates[id] == nil && len(targets) == 0 {
		b.mu.Unlock()
		return
	}
	f := b.fanOut(id)
	b.mu.Unlock()
	f.setTargets(targets)
	if len(targets) == 0 && !f.managed.Load() {
		b.Forget(id)
	}
}

// SetSelected sets the path for everything but handshakes to a managed peer. The zero path leaves
// the choice to the handshakes: the path that the last one proved, else the first candidate.
func (b *Bind) SetSelected(id string, p peer.Path) {
	f := b.peer(id)
	p.Remote = unmapped(p.Remote)
	switch {
	case f == nil:
	case usable(p.Remote):
		f.setSelected(b.endpointOf(p))
	default:
		f.setSelected(nil)
	}
}

// PathTo returns the path that data for peer:ID currently takes; invalid if there is none.
func (b *Bind) PathTo(id string) peer.Path {
	if f := b.peer(id); f != nil {
		if ep := f.first(); ep != nil {
			return pathOf(ep)
		}
	}
	return peer.Path{}
}

// peer returns the endpoint of an ID, nil if unknown.
func (b *Bind) peer(id string) *fanOut {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.candidates[id]
}

// roaming returns the unmanaged peer that has the path; nil if there is none.
func (b *Bind) roaming(p peer.Path) *fanOut {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.candidates {
		if !f.managed.Load() && f.has(p) {
			return f
		}
	}
	return nil
}

// fanOut finds or makes the endpoint of an ID. Bind.mu is held.
func (b *Bind) fanOut(id string) *fanOut {
	f := b.candidates[id]
	if f == nil {
		f = &fanOut{id: id, changed: b.paths.changed}
		f.targets.Store(&[]conn.Endpoint{})
		b.candidates[id] = f
	}
	return f
}

func usable(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
}

func (f *fanOut) setTargets(targets []conn.Endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, ep := range targets { // an endpoint that stays keeps what it knows about its link
		for _, old := range *f.targets.Load() {
			if pathOf(old) == pathOf(ep) {
				targets[i] = old
			}
		}
	}
	f.targets.Store(&targets)
	f.routeLocked()
}

func (f *fanOut) setSelected(ep conn.Endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ep == nil || f.selected == nil || pathOf(f.selected) != pathOf(ep) {
		f.selected = ep
	}
	f.routeLocked()
}

func (f *fanOut) setLearned(ep conn.Endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ep == nil || f.learned == nil || !samePath(f.learned, ep) {
		f.learned = ep
	}
	f.routeLocked()
}

// unlearn drops a learned endpoint on a relay that is gone.
func (f *fanOut) unlearn(relay string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.learned != nil && pathOf(f.learned).Via == relay {
		f.learned = nil
		f.routeLocked()
	}
}

// routeLocked decides where data goes. A learned endpoint knows which of our addresses the peer
// sends to; an announced one does not.
func (f *fanOut) routeLocked() {
	f.comparePathsLocked()
	ep := f.selected
	switch {
	case ep == nil && f.learned != nil, ep != nil && f.learned != nil && pathOf(ep) == pathOf(f.learned):
		ep = f.learned
	case ep == nil && len(*f.targets.Load()) > 0:
		ep = (*f.targets.Load())[0]
	}
	if ep == nil {
		f.data.Store(nil)
		return
	}
	f.data.Store(&ep)
}

// comparePathsLocked reports only real changes: each one makes the book of all paths be rebuilt,
// which takes milliseconds with thousands of peers, and most handshakes use a known path.
func (f *fanOut) comparePathsLocked() {
	now := make(map[peer.Path]struct{}, len(f.paths))
	f.eachLocked(func(p peer.Path) { now[p] = struct{}{} })
	if !maps.Equal(now, f.paths) {
		f.paths = now
		f.changed()
	}
}

// has reports whether the path is one of the peer's.
func (f *fanOut) has(p peer.Path) bool {
	for _, ep := range *f.targets.Load() {
		if pathOf(ep) == p {
			return true
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.selected != nil && pathOf(f.selected) == p || f.learned != nil && pathOf(f.learned) == p
}

// sendTo sends to a peer: a response to where the initiation came from, anything else on the path
// for data. An initiation waits for the machine's decision, or goes out on all paths.
func (b *Bind) sendTo(f *fanOut, bufs [][]byte) error {
	managed := f.managed.Load()
	switch {
	case len(bufs) != 1:
	case isInitiation(bufs[0]):
		if b.events.add(handshake.Event{Kind: handshake.Made, Peer: f.id, Initiation: handshake.Initiation{Message: bytes.Clone(bufs[0])}}) {
			return nil
		}
		return b.initiate(f, bufs)
	case managed && isResponse(bufs[0]):
		return b.respond(f, bufs[0])
	}
	ep := f.first()
	if managed && f.exchange.open.Load() {
		if proved, dead := b.handshakes.answered(f, bufs[0]); proved != nil {
			b.began(f, proved, dead)
			ep = proved // the other side must see on which path its response came
		}
	}
	if ep == nil {
		return fmt.Errorf("%s: %w", f.DstToString(), ErrNoCandidates)
	}
	return b.sendDirect(bufs, ep)
}

// initiate sends an initiation on all of the peer's paths.
func (b *Bind) initiate(f *fanOut, bufs [][]byte) error {
	targets := *f.targets.Load()
	if len(targets) > 0 {
		b.handshakes.initiated(f, bufs[0])
	}
	return b.sendToAll(f, targets, bufs)
}

// works reports whether an initiation has been sent on the path, and earlier ones or probes got
// through.
func (f *fanOut) works(p peer.Path) bool {
	f.mu.Lock()
	works := f.selected != nil && pathOf(f.selected) == p || f.learned != nil && pathOf(f.learned) == p
	f.mu.Unlock()
	return works && slices.ContainsFunc(*f.targets.Load(), func(ep conn.Endpoint) bool { return pathOf(ep) == p })
}

// sendToAll fails only if nothing could be sent to any address: one without a route does not
// matter.
func (b *Bind) sendToAll(f *fanOut, targets []conn.Endpoint, bufs [][]byte) error {
	if len(targets) == 0 {
		return fmt.Errorf("%s: %w", f.DstToString(), ErrNoCandidates)
	}
	var errs []error
	for _, ep := range targets {
		if err := b.sendDirect(bufs, ep); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ep.DstToString(), err))
		}
	}
	if len(errs) < len(targets) {
		return nil
	}
	return errors.Join(errs...)
}

func (f *fanOut) first() conn.Endpoint {
	if ep := f.data.Load(); ep != nil {
		return *ep
	}
	return nil
}

// ClearSrc makes the system choose the source address from now on.
func (f *fanOut) ClearSrc() {
	if ep := f.first(); ep != nil {
		ep.ClearSrc()
	}
}

// SrcToString is empty.
func (f *fanOut) SrcToString() string { return "" }

// SrcIP is invalid.
func (f *fanOut) SrcIP() netip.Addr { return netip.Addr{} }

// DstToString is peer:ID, not an address.
func (f *fanOut) DstToString() string { return candidatesPrefix + f.id }

// DstToBytes is the address that data goes to.
func (f *fanOut) DstToBytes() []byte {
	if ep := f.first(); ep != nil {
		return ep.DstToBytes()
	}
	return nil
}

// DstIP is the address that data goes to.
func (f *fanOut) DstIP() netip.Addr {
	if ep := f.first(); ep != nil {
		return ep.DstIP()
	}
	return netip.Addr{}
}
