package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// names tells the ticket book which names are taken.
type names struct{ g *Gateway }

// Reserve refuses a name that another key has, and a key that has another name.
func (n names) Reserve(name string, key peer.PublicKey) error {
	r := n.g.roster.Load()
	if m := r.byName[name]; m != nil && m.key != key {
		return &ticket.NameTakenError{Name: name}
	}
	if m := r.byKey[key]; m != nil && m.name != name {
		return fmt.Errorf("its key is already that of peer %s", m.name)
	}
	return nil
}

// PeerAdd adds a peer with a known key, or replaces the one of that name and key.
func (g *Gateway) PeerAdd(ctx context.Context, r api.PeerAddRequest) error {
	p, err := addedPeer(r, time.Now())
	if err != nil {
		return err
	}
	if err := g.checkServices("allow", p.Allow); err != nil {
		return err
	}
	if m := g.roster.Load().byName[p.Name]; m != nil && m.fromFile {
		return g.inFile(m)
	}
	return g.update(func(all *state.Peers) error {
		if err := all.Put(p); err != nil {
			return admin.Conflict(err.Error(), "")
		}
		return nil
	}, func() {
		g.audit.Record(ctx, audit.Grant, audit.Peer(p.Name), audit.PublicKey(p.PublicKey), audit.Services(p.Allow))
	})
}

// addedPeer reads a request to add a peer.
func addedPeer(r api.PeerAddRequest, now time.Time) (state.Peer, error) {
	q := r.Peer
	if err := api.CheckName(q.Name); err != nil {
		return state.Peer{}, admin.Usage("add peer: "+err.Error(), "")
	}
	key, err := peer.ParsePublicKey(q.PublicKey)
	if err != nil {
		return state.Peer{}, admin.Usage(fmt.Sprintf("add peer %s: public key: %v", q.Name, err), "the peer's operator sees it in `postern status` or `postern key pub`")
	}
	p := state.Peer{
		Name: q.Name, PublicKey: key, Mode: api.ModeInBand, Endpoints: q.Endpoints, Allow: sortedSet(q.Allow),
		Stock: q.Stock, Origin: state.OriginAdded, JoinedAt: now, Local: map[string]string{},
	}
	if q.Mode != "" && q.Mode != api.ModeInBand {
		return state.Peer{}, admin.Usage(fmt.Sprintf("add peer %s: mode %q is not available", q.Name, q.Mode), "leave it out or use InBand")
	}
	if r.PresharedKey != "" {
		if p.PresharedKey, err = peer.ParsePresharedKey(r.PresharedKey); err != nil {
			return state.Peer{}, admin.Usage(fmt.Sprintf("add peer %s: preshared key: %v", q.Name, err), "make one with `wg genpsk`")
		}
	}
	for _, e := range q.Endpoints {
		if _, err := netip.ParseAddrPort(e); err != nil {
			return state.Peer{}, admin.Usage(fmt.Sprintf("add peer %s: endpoint %q is not ip:port", q.Name, e), "such as 198.51.100.7:51820")
		}
	}
	for _, a := range q.AllowedIPs {
		prefix, err := netip.ParsePrefix(a)
		if err != nil || !q.Stock {
			return state.Peer{}, admin.Usage(fmt.Sprintf("add peer %s: allowed IP %q", q.Name, a), "only stock peers have them, as prefixes such as 192.0.2.7/32")
		}
		p.AllowedIPs = append(p.AllowedIPs, prefix.Masked())
	}
	if q.Local != nil {
		for service, address := range q.Local.Named {
			p.Local[service] = address
		}
		if q.Local.APIServer != "" {
			p.Local[api.ServiceAPIServer] = q.Local.APIServer
		}
	}
	return p, checkLocal(p.Local)
}

// PeerAllow sets what a peer may reach here. Open connections to what it may no longer
// reach are reset.
func (g *Gateway) PeerAllow(ctx context.Context, name string, r api.PeerAllowRequest) error {
	if err := g.checkServices("allow", r.Allow); err != nil {
		return err
	}
	return g.edit(name, func(p *state.Peer) { p.Allow = sortedSet(r.Allow) }, func() {
		g.audit.Record(ctx, audit.Grant, audit.Peer(name), audit.Services(sortedSet(r.Allow)))
	})
}

// PeerLocal adds, moves or (with an empty address) removes listeners here that lead to
// services of a peer.
func (g *Gateway) PeerLocal(_ context.Context, name string, r api.PeerLocalRequest) error {
	if err := checkLocal(r.Local); err != nil {
		return err
	}
	return g.edit(name, func(p *state.Peer) {
		if p.Local == nil {
			p.Local = map[string]string{}
		}
		for service, address := range r.Local {
			switch {
			case address != "":
				p.Local[service] = address
			case service == api.ServiceAPIServer:
				p.Local[service] = noListener
			default:
				delete(p.Local, service)
			}
		}
	}, nil)
}

// PeerApprove lets a peer in whose key an operator has confirmed.
func (g *Gateway) PeerApprove(_ context.Context, name string) error {
	m, err := g.member(name)
	if err != nil {
		return err
	}
	if !m.pending {
		return admin.Conflict(fmt.Sprintf("peer %s does not wait for approval", name), "")
	}
	return g.edit(name, func(p *state.Peer) { p.Pending = false }, func() {
		if _, err := g.book.Approve(time.Now(), m.key); err != nil {
			g.log.Warn("the approval cannot be noted in the ticket book", "peer", name, "error", err)
		}
	})
}

// PeerRemove forgets a peer: its flows are reset, its tunnel ends, it gets no further
// identity. With force a name that nobody has is no error.
func (g *Gateway) PeerRemove(ctx context.Context, name string, force bool) error {
	m, err := g.member(name)
	if err != nil {
		if force {
			return nil
		}
		return err
	}
	if m.fromFile {
		return g.inFile(m)
	}
	err = g.update(func(all *state.Peers) error {
		all.Remove(name)
		return nil
	}, func() {
		if _, err := g.book.Forget(time.Now(), m.key); err != nil {
			g.log.Warn("the peer's ticket cannot be closed", "peer", name, "error", err)
		}
		if err := g.store.Forget(name, m.key); err != nil {
			g.log.Warn("what was learned of a removed peer cannot be forgotten", "peer", name, "error", err)
		}
		g.auth.revoke(m)
		g.audit.Record(ctx, audit.Remove, audit.Peer(name), audit.PublicKey(m.key))
	})
	return err
}

// edit changes a peer of the state directory.
func (g *Gateway) edit(name string, f func(*state.Peer), then func()) error {
	m, err := g.member(name)
	if err != nil {
		return err
	}
	if m.fromFile {
		return g.inFile(m)
	}
	return g.update(func(all *state.Peers) error {
		p, ok := all.Get(name)
		if !ok {
			return admin.Conflict(fmt.Sprintf("peer %s was removed meanwhile", name), "")
		}
		f(&p)
		return all.Put(p)
	}, then)
}

// update stores a change of the peers and applies it. If it cannot be applied it is
// taken back. then runs before it is applied, once it is stored.
func (g *Gateway) update(f func(*state.Peers) error, then func()) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	before := g.store.Peers()
	if err := g.store.Update(f); err != nil && !errors.Is(err, state.ErrNotDurable) {
		return err
	}
	if then != nil {
		then()
	}
	err := g.apply(g.cfg)
	if err == nil {
		return nil
	}
	if undo := g.store.Update(func(all *state.Peers) error { *all = before; return nil }); undo != nil {
		err = errors.Join(err, undo)
	}
	if errors.Is(err, tunnel.ErrPeerSet) || errors.Is(err, errConflict) {
		return admin.Conflict(err.Error(), "nothing was changed")
	}
	return err
}

// inFile refuses to change what the configuration file says.
func (g *Gateway) inFile(m *member) error {
	return admin.Conflict(fmt.Sprintf("peer %s comes from %s, which commands do not change", m.name, g.running.Load().cfg.File),
		"edit the file, then send the gateway SIGHUP")
}

// checkServices refuses a grant of what this gateway does not have.
func (g *Gateway) checkServices(what string, list []string) error {
	known := offered(g.running.Load().cfg)
	for _, s := range list {
		if !slices.Contains(known, s) {
			return admin.Usage(fmt.Sprintf("%s: this gateway has no service %q", what, s), "it has "+strings.Join(known, ", "))
		}
	}
	return nil
}

// offered lists the services that can be granted. auth and apiServer can be granted
// before they are configured: the grant counts from then on.
func offered(cfg *config.Resolved) []string {
	list := []string{api.ServiceAuth, api.ServiceAPIServer}
	for _, n := range cfg.Services.Named {
		list = append(list, n.Name)
	}
	return list
}

// checkLocal refuses addresses that cannot be listened on.
func checkLocal(local map[string]string) error {
	for service, address := range local {
		if service != api.ServiceAPIServer {
			if err := api.CheckName(service); err != nil {
				return admin.Usage("local: service: "+err.Error(), "use apiServer or the name of one of the peer's services")
			}
		}
		if address == "" {
			continue
		}
		if _, err := netip.ParseAddrPort(address); err != nil {
			return admin.Usage(fmt.Sprintf("local %s: %q is not ip:port", service, address), "such as 127.0.0.1:7443")
		}
	}
	return nil
}

func sortedSet(list []string) []string {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}
