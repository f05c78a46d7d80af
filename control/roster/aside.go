package roster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel"
)

// sourceAside is the problem source for entries of the state directory.
const sourceAside = "state-entries"

// makeWay sets aside the stored peers that the tunnel refuses next to the configuration and each
// other, and reports whether there are any. One bad entry must not keep the gateway from starting.
// It is called at the start.
func (reg *Registry) makeWay(cfg *config.Resolved) (bool, error) {
	var good state.Peers
	try := func() error {
		r, err := Make(reg.publicKey, cfg.Peers, good, nil)
		if err != nil {
			return err
		}
		return reg.tunnel.SetPeers(r.peers(nowhere))
	}
	if try() != nil {
		return false, nil //nolint:nilerr // the configuration is at fault, which only its owner changes
	}
	reasons := map[string]error{}
	for _, p := range reg.store.Peers().All() {
		if err := good.Put(p); err != nil {
			return false, err
		}
		err := try()
		switch {
		case err == nil:
			continue
		case !errors.Is(err, tunnel.ErrPeerSet):
			return false, err
		}
		reasons[p.Name] = err
		good.Remove(p.Name)
	}
	if len(reasons) == 0 {
		return false, nil
	}
	err := reg.store.Restrict(func(all *state.Peers) error {
		for name, reason := range reasons {
			all.SetAside(name, reason.Error())
		}
		return nil
	})
	if errors.Is(err, state.ErrNotStored) || errors.Is(err, state.ErrNotDurable) {
		reg.log.Warn("failed to store which entries were set aside; the next start will check them again", "error", err)
		err = nil
	}
	for name, reason := range reasons {
		reg.log.Warn("set aside a peer in the state directory; it is ignored", "code", string(catalogue.EntryAside), "peer", name, "reason", reason)
	}
	return true, err
}

// disclaimOwnKey sets aside announcements of this gateway's own key. No peer has it.
func (reg *Registry) disclaimOwnKey() {
	var of []string
	for _, p := range reg.store.Peers().All() {
		if p.NextKey == reg.publicKey {
			of = append(of, p.Name)
		}
	}
	if len(of) == 0 {
		return
	}
	err := reg.store.Update(func(all *state.Peers) error {
		for _, name := range of {
			all.SetNextAside(name, "the key that it announced is this gateway's own; the peer counts without")
		}
		return nil
	})
	if err != nil && !errors.Is(err, state.ErrNotDurable) {
		reg.log.Warn("failed to set aside a rotation to this gateway's own key; it is ignored", "peers", of, "error", err)
	}
}

// ShowAside shows the set-aside entries of the state directory as own checks.
func (reg *Registry) ShowAside() {
	var list []check.OwnProblem
	for _, a := range reg.store.Aside() {
		p := catalogue.Params{File: a.File, Field: a.Name, Detail: a.Reason}
		if a.Announced {
			p.PeerName = a.Name
		}
		list = append(list, check.OwnProblem{Name: sourceAside, Code: catalogue.EntryAside, Params: p, Since: reg.o.StartedAt})
	}
	reg.o.SetProblems(sourceAside, list)
}

// removeAside deletes a peer that was set aside, and its tickets. It reports whether there was one.
func (reg *Registry) removeAside(name string) (bool, error) {
	if !reg.store.Peers().HasAside(name) {
		return false, nil
	}
	err := reg.Update(Update{
		Tickets: func() error {
			_, err := reg.book.Forget(time.Now(), ticket.Leaver{Name: name})
			return err
		},
		Peers:     func(all *state.Peers) error { all.DropAside(name); return nil },
		Applied:   func() { reg.log.Info("removed an entry that was set aside", "peer", name) },
		Restricts: func() string { return fmt.Sprintf("the entry of peer %s that stood aside is removed", name) },
	})
	reg.ShowAside()
	return true, err
}

// applyFirst applies the configuration at the start. One invalid object in the cluster must not
// keep the gateway from running. Without the objects it starts with the joined peers, under the
// options that their objects give them, and the controller then finds out which objects are valid.
func (c *Change) applyFirst(cfg *config.Resolved) error {
	reg, err := c.reg, c.Apply(cfg)
	if errors.Is(err, tunnel.ErrPeerSet) {
		cause := err
		made, err := reg.makeWay(cfg)
		switch {
		case err != nil:
			return errors.Join(cause, err)
		case made:
			return c.applyFirst(cfg)
		}
	}
	if err == nil || cfg.Kubernetes == nil {
		return err
	}
	options := slices.DeleteFunc(slices.Clone(cfg.Peers), func(p config.Peer) bool { return !p.Joined })
	if len(options) == len(cfg.Peers) {
		return err
	}
	reg.log.Warn("cluster's peers rejected as a whole; trying them one by one", "error", err)
	return c.Apply(cfg.WithPeers(options))
}
