package gateway

import (
	"fmt"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// What a cluster's objects are made of, and what is remembered of them.

// Joined lists the peers that joined or were added by command, by name. It is a snapshot.
func (g *Gateway) Joined() []state.Peer { return g.store.Peers().All() }

// NoteObject remembers that a peer that joined has an object in the cluster, and which key
// is in it: when that object is deleted, even while this gateway does not run, the peer is
// to be removed. A peer that has gone meanwhile is no error.
func (g *Gateway) NoteObject(name string, key peer.PublicKey) error {
	err := g.store.Update(func(all *state.Peers) error {
		p, ok := all.Get(name)
		if !ok || p.ObjectKey == key {
			return nil
		}
		p.ObjectKey = key
		return all.Put(p)
	})
	if err != nil {
		return fmt.Errorf("remember the object of peer %s: %w", name, err)
	}
	return nil
}

// Tickets lists what the book knows of the tickets that were made here; no secrets.
func (g *Gateway) Tickets() []ticket.Standing { return g.peers.Book().Standings() }

// Revoke ends an open ticket: nobody can redeem it any more. One that has ended, or is not
// known, is no error.
func (g *Gateway) Revoke(id string) error {
	t, err := ticket.ParseID(id)
	if err != nil {
		return admin.Usage("revoke: "+err.Error(), "")
	}
	return g.peers.Change(func(c *roster.Change) error {
		if err := g.peers.Book().Revoke(time.Now(), t); err != nil {
			return err
		}
		return c.Refresh()
	})
}
