package gateway

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
)

// peerChange is a change of the peers in the state directory, in the order in which it
// is made. If a step fails those after it are not made.
type peerChange struct {
	// tickets changes the ticket book; nil if that has no part in it. It is not taken
	// back when a later step fails, so it is something that may stand by itself.
	tickets func() error
	peers   func(*state.Peers) error
	// applied runs when the change is in force; it may be nil.
	applied func()
	// restricts marks a change that takes something away. That counts also when it cannot
	// be stored, for a full disk must not keep a peer in; restricts then says what counts.
	restricts func() string
}

// update stores a change of the peers and applies it, unless nothing is another than before. If
// it cannot be applied it is taken back.
func (g *Gateway) update(c peerChange) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	return g.updateLocked(c)
}

// updateLocked is update with changing held.
func (g *Gateway) updateLocked(c peerChange) error {
	if g.changed.closed {
		return errStopping
	}
	var unstored []error
	if c.tickets != nil {
		err := c.tickets()
		switch {
		case err != nil && c.restricts != nil && errors.Is(err, ticket.ErrStorage):
			unstored = append(unstored, err)
		case err != nil:
			return err
		}
	}
	before := g.store.Peers()
	err := g.storePeers(c)
	switch {
	case errors.Is(err, state.ErrNotStored):
		unstored = append(unstored, err)
	case err != nil:
		return err
	case len(unstored) == 0 && g.unchanged(before):
		return nil
	}
	if err := g.apply(g.changed.cfg); err != nil {
		return g.takeBack(before, err)
	}
	if c.applied != nil {
		c.applied()
	}
	if len(unstored) > 0 {
		return g.notStored(c.restricts(), errors.Join(unstored...))
	}
	return nil
}

// unchanged reports whether the peers are those of before, and the tickets' are those in force:
// what was to be changed was so already. Nothing was written then, and nothing is applied.
func (g *Gateway) unchanged(before state.Peers) bool {
	return reflect.DeepEqual(before, g.store.Peers()) && !g.roster.Load().hasOther(g.book.OneTimePeers(time.Now()))
}

// takeBack undoes a change of the peers in the state directory that could not be applied.
func (g *Gateway) takeBack(before state.Peers, cause error) error {
	undo := g.storePeers(peerChange{peers: func(all *state.Peers) error { *all = before; return nil }})
	if undo != nil {
		g.log.Error("a change of the peers that could not be applied cannot be taken back in the state directory; it is tried again at the next start",
			"error", undo)
	}
	if contradicts(cause) {
		return admin.Conflict(cause.Error(), "nothing was changed")
	}
	return cause
}

// notStored is the answer to a command that took something away, which counts now but
// not after a restart.
func (g *Gateway) notStored(counts string, cause error) error {
	g.log.Warn("what was taken away from a peer could not be stored; it comes back if the gateway restarts before that",
		"code", string(catalogue.NotStored), "inForce", counts, "error", cause)
	return admin.Failed(fmt.Sprintf("%s, but this is not stored and is undone when the gateway restarts: %v", counts, cause),
		"fix the state directory, such as by freeing space, and repeat the command")
}

// storePeers changes the peers on disk. A change that may not survive a power cut has
// been made all the same: what is in force now is what the file says.
func (g *Gateway) storePeers(c peerChange) error {
	store := g.store.Update
	if c.restricts != nil {
		store = g.store.Restrict
	}
	err := store(c.peers)
	if errors.Is(err, state.ErrNotDurable) {
		g.log.Warn("a change of the peers may not survive a power cut", "error", err)
		return nil
	}
	return err
}

// storeAgain stores what was taken away while the state directory could not be written.
func (g *Gateway) storeAgain() error {
	if !g.store.Unstored() {
		return nil
	}
	if err := g.store.Flush(); err != nil && !errors.Is(err, state.ErrNotDurable) {
		return err
	}
	g.log.Info("what was taken away from peers while the state directory could not be written is stored now")
	return nil
}
