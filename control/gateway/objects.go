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

// The data behind a cluster's objects, and what is stored about them.

// Joined lists the peers that joined or were added by command, by name. It is a snapshot.
func (g *Gateway) Joined() []state.Peer { return g.store.Peers().All() }

// NoteObject stores that a joined peer has an object in the cluster, and the key in it. When that
// object is deleted, even while this gateway is down, the peer is removed. It is no error if the
// peer is gone.
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

// Tickets lists the tickets issued here, without secrets.
func (g *Gateway) Tickets() []ticket.Standing { return g.peers.Book().Standings() }

// Revoke revokes an open ticket. It is no error if the ticket has ended or is unknown.
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
