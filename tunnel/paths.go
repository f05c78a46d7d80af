package tunnel

import (
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Paths are the paths to a managed peer.
type Paths struct {
	// Initiate are the paths to try handshakes on, at most [peer.MaxPaths].
	Initiate []peer.Path
	// Selected carries everything but handshakes. The zero path leaves the choice to the
	// handshakes: the path that the last one proved, else the first of Initiate.
	Selected peer.Path
}

// EventKind says what happened to a peer.
type EventKind int

const (
	// HandshakeDone: a handshake completed on the event's path.
	HandshakeDone EventKind = iota + 1
	// Silent: for 5 s nothing sent on the selected path, which is the event's, was answered, or two
	// handshakes were not. It is sent once until the peer answers or another path is selected.
	Silent
	// Quiet: for 2 s nothing sent on the selected path was answered. It may not have needed an
	// answer. Something that does, sent within the next 3 s, shows whether the path is Silent. It
	// is sent once until the peer answers.
	Quiet
)

// String is the kind in words, for logs.
func (k EventKind) String() string {
	switch k {
	case HandshakeDone:
		return "handshake done"
	case Silent:
		return "silent"
	case Quiet:
		return "quiet"
	default:
		return fmt.Sprintf("event kind %d", int(k))
	}
}

// Event is something that happened to a managed peer.
type Event struct {
	Peer peer.PublicKey
	Kind EventKind
	Path peer.Path
}

// SetPaths sets the paths of a managed peer. Its session stays. A peer without one is dialled soon
// if a path is new or selected: a selected path is known to work, and initiations that cross on it
// do not undo each other. Until the first call its endpoints are tried, as for any peer. Setting
// the same paths again costs almost nothing.
func (e *Engine) SetPaths(k peer.PublicKey, paths Paths) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.checkPeerLocked(k); err != nil {
		return fmt.Errorf("set the paths of %s: %w", k, err)
	}
	p := e.peers[k]
	if !p.config.Managed {
		return fmt.Errorf("set the paths of peer %q: %w", p.config.Name, ErrNotManaged)
	}
	if p.paths != nil && p.paths.Selected == paths.Selected && slices.Equal(p.paths.Initiate, paths.Initiate) {
		return nil
	}
	now := time.Now()
	known, selected := p.addresses(), p.selected()
	p.paths = &Paths{Initiate: slices.Clone(paths.Initiate), Selected: paths.Selected}
	e.routeLocked(k, p)
	news := slices.ContainsFunc(paths.Initiate, func(o peer.Path) bool { return !slices.Contains(known, o) })
	if paths.Selected != selected {
		p.machine.Selected(now)
		news = news || paths.Selected.IsValid()
	}
	if news {
		p.machine.NewPath(now)
	}
	p.pollAt = now
	e.kick.Set()
	return nil
}

// routeLocked passes a managed peer's paths to the underlay. Engine.mu is held, so that an older
// set of paths cannot replace a newer one.
func (e *Engine) routeLocked(k peer.PublicKey, p *peerState) {
	e.bind.SetCandidates(endpointID(k), p.addresses())
	e.bind.SetSelected(endpointID(k), p.selected())
}

// selected returns the path selected for the peer, zero if none was.
func (p *peerState) selected() peer.Path {
	if p.paths == nil {
		return peer.Path{}
	}
	return p.paths.Selected
}

// addresses returns the paths on which a peer may be reached. For a managed peer these are the
// paths to initiate on, followed by the last proven one. For other peers they are the last proven
// one and the endpoints. Everything but initiations goes to the first.
func (p *peerState) addresses() []peer.Path {
	var paths []peer.Path
	if p.paths != nil {
		paths = append(paths, p.paths.Initiate...)
	} else {
		for _, a := range p.config.Endpoints {
			paths = append(paths, peer.Direct(a))
		}
	}
	source := p.machine.Source
	switch {
	case !source.IsValid():
		return paths
	case !p.config.Managed:
		return slices.Insert(paths, 0, source)
	case slices.Contains(paths, source):
		return paths
	default:
		return append(paths[:min(len(paths), peer.MaxPaths-1)], source)
	}
}

// reachable reports whether there are addresses.
func (p *peerState) reachable() bool {
	known := len(p.config.Endpoints)
	if p.paths != nil {
		known = len(p.paths.Initiate)
	}
	return known > 0 || p.machine.Source.IsValid()
}

// queueEventLocked queues an event for drive to deliver. It replaces a queued event of the same
// kind about the same peer.
func (e *Engine) queueEventLocked(event Event) {
	if e.onEvent == nil {
		return
	}
	e.events = slices.DeleteFunc(e.events, func(o Event) bool { return o.Peer == event.Peer && o.Kind == event.Kind })
	e.events = append(e.events, event)
}

// deliverEvents delivers the events. Only drive calls it.
func (e *Engine) deliverEvents() {
	e.mu.Lock()
	events := e.events
	e.events = nil
	e.mu.Unlock()
	for _, event := range events {
		e.onEvent(event)
	}
}
