package gateway

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// What a cluster's objects are made of, and what is remembered of them.

// applyFirst applies the configuration of the start. One object of the cluster that cannot be
// must not keep the gateway from running: without those it starts with the peers that joined,
// under the options that their objects give them, and who reads the objects finds out which
// are good. It is called with changing held.
func (g *Gateway) applyFirst(cfg *config.Resolved) error {
	err := g.apply(cfg)
	if errors.Is(err, tunnel.ErrPeerSet) {
		cause := err
		made, err := g.makeWay(cfg)
		switch {
		case err != nil:
			return errors.Join(cause, err)
		case made:
			return g.applyFirst(cfg)
		}
	}
	if err == nil || cfg.Kubernetes == nil {
		return err
	}
	options := slices.DeleteFunc(slices.Clone(cfg.Peers), func(p config.Peer) bool { return !p.Joined })
	if len(options) == len(cfg.Peers) {
		return err
	}
	g.log.Warn("the cluster's peers cannot all be taken at the start; they are tried one by one", "error", err)
	return g.apply(withPeers(cfg, options))
}

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
func (g *Gateway) Tickets() []ticket.Standing { return g.book.Standings() }

// Revoke ends an open ticket: nobody can redeem it any more. One that has ended, or is not
// known, is no error.
func (g *Gateway) Revoke(id string) error {
	t, err := ticket.ParseID(id)
	if err != nil {
		return admin.Usage("revoke: "+err.Error(), "")
	}
	return g.change(func() error { return g.book.Revoke(time.Now(), t) })
}
