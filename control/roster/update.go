package roster

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel"
)

// Update is a change of the peers in the state directory, in the order in which its steps run. If a
// step fails the later ones do not run.
type Update struct {
	// Tickets changes the tickets; nil if they stay. It is not undone when a later step fails, so
	// it must make sense by itself.
	Tickets func() error
	Peers   func(*state.Peers) error
	// Applied runs once the change is in force; it may be nil.
	Applied func()
	// Restricts marks a change that revokes something. It takes effect even if it cannot be stored,
	// since a full disk must not keep a peer in; Restricts then describes what is in force.
	Restricts func() string
}

// Update is [Change.Update] on its own.
func (reg *Registry) Update(u Update) error {
	return reg.Change(func(c *Change) error { return c.Update(u) })
}

// Update stores a change of the peers and applies it, unless nothing differs. If it cannot be
// applied it is rolled back.
func (c *Change) Update(u Update) error {
	reg := c.reg
	var unstored []error
	if u.Tickets != nil {
		err := u.Tickets()
		switch {
		case err != nil && u.Restricts != nil && errors.Is(err, ticket.ErrStorage):
			unstored = append(unstored, err)
		case err != nil:
			return err
		}
	}
	before := reg.store.Peers()
	err := reg.storePeers(u)
	switch {
	case errors.Is(err, state.ErrNotStored):
		unstored = append(unstored, err)
	case err != nil:
		return err
	case len(unstored) == 0 && reg.unchanged(before):
		return nil
	}
	if err := c.Refresh(); err != nil {
		return reg.takeBack(before, err)
	}
	if u.Applied != nil {
		u.Applied()
	}
	if len(unstored) > 0 {
		return reg.notStored(u.Restricts(), errors.Join(unstored...))
	}
	return nil
}

// unchanged reports whether the peers and the tickets' peers are the same as before. Then nothing
// was written, and nothing is applied.
func (reg *Registry) unchanged(before state.Peers) bool {
	return reflect.DeepEqual(before, reg.store.Peers()) && !reg.Load().hasOther(reg.book.OneTimePeers(time.Now()))
}

// takeBack rolls back a stored change of the peers that could not be applied.
func (reg *Registry) takeBack(before state.Peers, cause error) error {
	undo := reg.storePeers(Update{Peers: func(all *state.Peers) error { *all = before; return nil }})
	if undo != nil {
		reg.log.Error("failed to roll back a rejected change of the peers in the state directory; the next start will retry it",
			"error", undo)
	}
	if contradicts(cause) {
		return admin.Conflict(cause.Error(), "nothing was changed")
	}
	return cause
}

// notStored is the answer to a command that revoked something, which is in force now but not after
// a restart.
func (reg *Registry) notStored(counts string, cause error) error {
	reg.log.Warn("failed to store a revocation; it is lost if the gateway restarts before it is stored",
		"code", string(catalogue.NotStored), "inForce", counts, "error", cause)
	return admin.Failed(fmt.Sprintf("%s, but this is not stored and is undone when the gateway restarts: %v", counts, cause),
		"fix the state directory, such as by freeing space, and repeat the command")
}

// storePeers changes the peers on disk. A change that a power cut may lose has still been made:
// what is in force is what the file says.
func (reg *Registry) storePeers(c Update) error {
	store := reg.store.Update
	if c.Restricts != nil {
		store = reg.store.Restrict
	}
	err := store(c.Peers)
	if errors.Is(err, state.ErrNotDurable) {
		reg.log.Warn("failed to sync a change of the peers to disk; a power cut may lose it", "error", err)
		return nil
	}
	return err
}

// storeAgain stores revocations that could not be written before.
func (reg *Registry) storeAgain() error {
	if !reg.store.Unstored() {
		return nil
	}
	if err := reg.store.Flush(); err != nil && !errors.Is(err, state.ErrNotDurable) {
		return err
	}
	reg.log.Info("stored the pending revocations")
	return nil
}

// errConflict marks a peer of the file that conflicts with one in the state directory.
var errConflict = errors.New("the configuration and the state directory contradict each other")

// contradicts reports whether peers conflict with others, which the operator has to resolve.
func contradicts(err error) bool {
	return errors.Is(err, tunnel.ErrPeerSet) || errors.Is(err, errConflict)
}
