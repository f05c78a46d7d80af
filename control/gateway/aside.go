package gateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel"
)

// sourceAside is the source of the problems that entries of the state directory are.
const sourceAside = "state-entries"

// makeWay has those peers of the state directory stand aside that the tunnel refuses beside the
// configuration and each other, and reports whether there are any. One bad entry must not
// keep the gateway from starting. It is called at the start, with changing held.
func (g *Gateway) makeWay(cfg *config.Resolved) (bool, error) {
	var good state.Peers
	try := func() error {
		r, err := makeRoster(g.publicKey, cfg.Peers, good, nil)
		if err != nil {
			return err
		}
		return g.plane.Engine.SetPeers(r.peers(nowhere))
	}
	if try() != nil {
		return false, nil //nolint:nilerr // the configuration is to blame, which only its owner changes
	}
	reasons := map[string]error{}
	for _, p := range g.store.Peers().All() {
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
	err := g.store.Restrict(func(all *state.Peers) error {
		for name, reason := range reasons {
			all.SetAside(name, reason.Error())
		}
		return nil
	})
	if errors.Is(err, state.ErrNotStored) || errors.Is(err, state.ErrNotDurable) {
		g.log.Warn("that entries stand aside is not stored; the next start finds out again", "error", err)
		err = nil
	}
	for name, reason := range reasons {
		g.log.Warn("a peer of the state directory stands aside, and counts for nothing", "code", string(catalogue.EntryAside), "peer", name, "reason", reason)
	}
	return true, err
}

// disclaimOwnKey has announcements of this gateway's own key stand aside. No peer has it.
func (g *Gateway) disclaimOwnKey() {
	var of []string
	for _, p := range g.store.Peers().All() {
		if p.NextKey == g.publicKey {
			of = append(of, p.Name)
		}
	}
	if len(of) == 0 {
		return
	}
	err := g.store.Update(func(all *state.Peers) error {
		for _, name := range of {
			all.SetNextAside(name, "the key that it announced is this gateway's own; the peer counts without")
		}
		return nil
	})
	if err != nil && !errors.Is(err, state.ErrNotDurable) {
		g.log.Warn("peers announced this gateway's own key, and that cannot be put aside; it does not count all the same", "peers", of, "error", err)
	}
}

// showAside has own checks say which entries of the state directory stand aside.
func (g *Gateway) showAside() {
	var list []check.OwnProblem
	for _, a := range g.store.Aside() {
		p := catalogue.Params{File: a.File, Field: a.Name, Detail: a.Reason}
		if a.Announced {
			p.PeerName = a.Name
		}
		list = append(list, check.OwnProblem{Name: sourceAside, Code: catalogue.EntryAside, Params: p, Since: g.startedAt})
	}
	g.SetProblems(sourceAside, list)
}

// removeAside forgets a peer that stands aside, and closes what it came by. It reports whether
// there was one.
func (g *Gateway) removeAside(name string) (bool, error) {
	if !g.store.Peers().HasAside(name) {
		return false, nil
	}
	err := g.update(peerChange{
		tickets: func() error {
			_, err := g.book.Forget(time.Now(), ticket.Leaver{Name: name})
			return err
		},
		peers:     func(all *state.Peers) error { all.DropAside(name); return nil },
		applied:   func() { g.log.Info("an entry that stood aside is removed", "peer", name) },
		restricts: func() string { return fmt.Sprintf("the entry of peer %s that stood aside is removed", name) },
	})
	g.showAside()
	return true, err
}
