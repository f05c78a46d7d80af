package roster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// PeerAdd adds a peer with a known key, or replaces the one of that name and key.
func (reg *Registry) PeerAdd(ctx context.Context, r api.PeerAddRequest) error {
	cfg := reg.Config()
	p, err := addedPeer(r, cfg, time.Now())
	if err != nil {
		return err
	}
	if m := reg.Load().ByName(p.Name); m != nil && m.FromFile {
		return reg.inFile(m)
	}
	return reg.Update(Update{
		Peers: func(all *state.Peers) error {
			if err := reg.CheckKey("add peer "+p.Name, p.Name, p.PublicKey); err != nil {
				return err
			}
			if err := all.Put(p); err != nil {
				return admin.Conflict("add peer: "+err.Error(), "")
			}
			return nil
		},
		Applied: func() {
			reg.o.Audit.Record(ctx, audit.Grant, audit.Peer(p.Name), audit.PublicKey(p.PublicKey), audit.Services(p.Allow))
		},
	})
}

// addedPeer parses a request to add a peer, by the rules of the configuration file.
func addedPeer(r api.PeerAddRequest, cfg *config.Resolved, now time.Time) (state.Peer, error) {
	what := "add peer " + fmt.Sprintf("%.*q", api.MaxNameLength, r.Peer.Name)
	if r.Peer.PublicKey == "" {
		return state.Peer{}, admin.Usage(what+": no public key", "the peer's operator sees it in `postern status` or `postern key pub`")
	}
	if r.Peer.Services != nil || r.Peer.Local != nil && len(r.Peer.Local.Services) > 0 {
		return state.Peer{}, admin.Usage(what+": what is exported to a peer and imported from it is said by the configuration alone", "put the peer into spec.peers")
	}
	q, err := config.ResolvePeer(r.Peer, cfg.Services.Named)
	if err != nil {
		return state.Peer{}, admin.Usage(what+": "+err.Error(), "")
	}
	p := state.Peer{
		Name: q.Name, PublicKey: q.PublicKey, Mode: api.ModeInBand, Allow: q.Allow, Stock: q.Stock,
		AllowedIPs: q.AllowedIPs, Origin: state.OriginAdded, JoinedAt: now, Local: map[string]string{},
	}
	if r.PresharedKey != "" {
		if p.PresharedKey, err = peer.ParsePresharedKey(r.PresharedKey); err != nil {
			return state.Peer{}, admin.Usage(fmt.Sprintf("%s: preshared key: %v", what, err), "make one with `wg genpsk`")
		}
	}
	for _, e := range q.Endpoints {
		p.Endpoints = append(p.Endpoints, e.String())
	}
	p.Endpoints = append(p.Endpoints, q.EndpointNames...)
	for service, address := range q.Local {
		p.Local[service] = address.String()
	}
	return p, nil
}

// AddFound adds a discovered gateway as a peer. chosen says that an operator gave the name.
func (reg *Registry) AddFound(ctx context.Context, name string, k peer.PublicKey, allow []string, chosen bool) error {
	return reg.Update(Update{
		Peers: func(all *state.Peers) error {
			// Checked last: another peer may have taken the name or the key meanwhile.
			if err := reg.CheckKey("approve "+name, "", k); err != nil {
				return err
			}
			if err := reg.Reserve(name, k, chosen); err != nil {
				return admin.Conflict("approve: "+err.Error(), "give it another name with --as NAME")
			}
			return all.Put(state.Peer{
				Name: name, Identity: IdentityFor(name, k, chosen), PublicKey: k, Mode: api.ModeInBand, Allow: Sorted(allow),
				Origin: state.OriginFound, JoinedAt: time.Now(), Local: map[string]string{},
			})
		},
		Applied: func() {
			reg.o.Audit.Record(ctx, audit.Approve, audit.Peer(name), audit.PublicKey(k), audit.Services(allow))
		},
	})
}

// PeerAllow sets what a peer may reach here. Open connections to what it may no longer reach are
// reset.
func (reg *Registry) PeerAllow(ctx context.Context, name string, r api.PeerAllowRequest) error {
	return reg.allow(ctx, name, r, 0)
}

// allow is PeerAllow, on trial for within unless that is 0.
func (reg *Registry) allow(ctx context.Context, name string, r api.PeerAllowRequest, within time.Duration) error {
	if err := reg.CheckServices("allow", r.Allow); err != nil {
		return err
	}
	if m, err := reg.Member(name); err == nil && m.FileAllows {
		return reg.inFile(m)
	}
	allow := Sorted(r.Allow)
	m, err := reg.editable(name)
	if err != nil {
		return err
	}
	if m.Stock && slices.Contains(allow, api.ServiceAuth) {
		return admin.Usage(fmt.Sprintf("allow: peer %s is a plain WireGuard peer, which cannot use auth: it has no overlay address of its own, from which its identity would be known", name),
			"apiServer and named services can be granted")
	}
	u := Update{
		Peers: EditPeer(m, undoable(within, func(p *state.Peer) { p.Allow = allow })),
		Applied: func() {
			reg.o.Audit.Record(ctx, audit.Grant, audit.Peer(name), audit.PublicKey(m.Key), audit.Services(reg.allowedNow(name)))
		},
	}
	if within == 0 { // what cannot be stored cannot be rolled back after a restart
		u.Restricts = func() string { return reg.mayReachNow(name) }
	}
	return reg.Update(u)
}

// mayReachNow says what a peer may reach.
func (reg *Registry) mayReachNow(name string) string {
	return fmt.Sprintf("peer %s may reach [%s] here now", name, strings.Join(reg.allowedNow(name), " "))
}

// allowedNow returns what a stored peer may reach here.
func (reg *Registry) allowedNow(name string) []string {
	p, _ := reg.store.Peers().Get(name)
	return p.Allow
}

// PeerLocal adds, moves or (with an empty address) removes local listeners for services of a peer.
func (reg *Registry) PeerLocal(_ context.Context, name string, r api.PeerLocalRequest) error {
	return reg.local(name, r, 0)
}

// local is PeerLocal, on trial for within unless that is 0.
func (reg *Registry) local(name string, r api.PeerLocalRequest, within time.Duration) error {
	if err := CheckLocal(r.Local); err != nil {
		return err
	}
	if m, err := reg.Member(name); err == nil && m.Stock {
		return admin.Conflict(fmt.Sprintf("peer %s is a plain WireGuard peer, which offers no services to listen for", name), "")
	}
	m, err := reg.editable(name)
	if err != nil {
		return err
	}
	return reg.Update(Update{Peers: EditPeer(m, undoable(within, func(p *state.Peer) {
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
	}))})
}

// PeerApprove admits a peer whose key an operator has confirmed. The request must contain the key:
// whoever redeems a ticket first gets the expected name.
func (reg *Registry) PeerApprove(_ context.Context, name string, r api.PeerApproveRequest) error {
	m, err := reg.Member(name)
	if err != nil {
		return err
	}
	if !m.Pending {
		return admin.Conflict(fmt.Sprintf("peer %s does not wait for approval", name), "")
	}
	switch fingerprint := peer.Fingerprint(m.Key); r.Fingerprint {
	case fingerprint, m.Key.String():
	case "":
		return admin.Usage(fmt.Sprintf("approve %s: no fingerprint is given, and a name alone is no proof; the key of the peer that waits has the fingerprint %s", name, fingerprint),
			"compare it with what `postern join` printed at the other gateway, then give it with --fingerprint")
	default:
		return admin.Conflict(fmt.Sprintf("approve %s: the key of the peer that waits has the fingerprint %s, and not the one given", name, fingerprint),
			"compare it with what `postern join` printed at the other gateway; if it is another's: postern peer remove "+name)
	}
	return reg.Update(Update{
		// The tickets go first: if they came last and failed, the peer would be pending again as
		// soon as it repeated its request.
		Tickets: func() error {
			_, err := reg.book.Approve(time.Now(), m.Key)
			return err
		},
		Peers: EditPeer(m, func(p *state.Peer) { p.Pending = false }),
	})
}

// inUse returns how many flows of a peer somebody would miss. The peer's own do not count: those to
// auth, and the checks of the API server. A check cannot be told from another connection until it
// has lasted longer than a check may, so inUse waits as long if that is all there is.
func inUse(ctx context.Context, list func() []api.Flow) (int, error) {
	const lookAgain = 50 * time.Millisecond
	wait := time.NewTicker(lookAgain)
	defer wait.Stop()
	for until := time.Now().Add(check.Timeout); ; {
		flows := slices.DeleteFunc(list(), func(f api.Flow) bool { return f.Service == api.ServiceAuth })
		if len(flows) == 0 || time.Now().After(until) || slices.ContainsFunc(flows, func(f api.Flow) bool {
			return f.Direction != api.DirectionInbound || f.Service != api.ServiceAPIServer || time.Since(f.StartedAt) > check.Timeout
		}) {
			return len(flows), nil
		}
		select {
		case <-wait.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// PeerRemove removes a peer: its flows are reset, its tunnel ends, and it gets no more identities.
// Unless force is set, it refuses to remove a peer with open connections that somebody uses. With
// force an unknown name is no error. A removal that could not be stored may be repeated.
func (reg *Registry) PeerRemove(ctx context.Context, name string, force bool) error {
	m, err := reg.Member(name)
	if err != nil || m.FromFile { // a configured peer does not keep a set-aside entry of its name from being removed
		if there, err := reg.removeAside(name); there {
			return err
		}
	}
	if err != nil {
		if reg.store.Lingers(name) {
			if err := reg.storeAgain(); err != nil {
				return reg.notStored(removed(name), err)
			}
			return nil
		}
		if force {
			return nil
		}
		return err
	}
	if m.FromFile {
		return reg.inFile(m)
	}
	if !force {
		n, err := inUse(ctx, func() []api.Flow { return reg.flows.List(name) })
		if err != nil {
			return fmt.Errorf("wait for the connections of peer %s: %w", name, err)
		}
		if n > 0 {
			return admin.Conflict(fmt.Sprintf("peer %s has connections open, and removing it would reset them: %d", name, n),
				"postern peer remove "+name+" --force")
		}
		if m, err = reg.Member(name); err != nil { // its key may have changed meanwhile
			return err
		}
	}
	err = reg.Update(Update{
		// The tickets go first: a peer whose ticket is still open could come back with it.
		Tickets: func() error {
			reg.removedByHand(m)
			_, err := reg.book.Forget(time.Now(), ticket.Leaver{Name: m.Name, Ticket: m.Ticket, Keys: m.AllKeys()})
			return err
		},
		Peers: func(all *state.Peers) error {
			if p, ok := all.Get(name); ok && p.PublicKey == m.Key {
				all.Remove(name)
				all.DropAside(name) // otherwise it could not join again under its name
			}
			return nil
		},
		Applied: func() {
			reg.o.Audit.Record(ctx, audit.Remove, audit.Peer(name), audit.PublicKey(m.Key))
		},
		Restricts: func() string { return removed(name) },
	})
	reg.ShowAside()
	return err
}

// removed describes what a removal did.
func removed(name string) string {
	return "peer " + name + " is removed and its connections have ended"
}

// editable returns a peer that commands may change.
func (reg *Registry) editable(name string) (*Member, error) {
	m, err := reg.Member(name)
	if err != nil {
		return nil, err
	}
	if m.FromFile {
		return nil, reg.inFile(m)
	}
	return m, nil
}

// EditPeer applies f to the peer that the operator saw, and not to another that has taken its name
// meanwhile.
func EditPeer(m *Member, f func(*state.Peer)) func(*state.Peers) error {
	return func(all *state.Peers) error {
		p, ok := all.Get(m.Name)
		if !ok || p.PublicKey != m.Key {
			return admin.Conflict(fmt.Sprintf("peer %s was removed meanwhile", m.Name), "")
		}
		f(&p)
		return all.Put(p)
	}
}

// inFile refuses to change what the configuration file defines.
func (reg *Registry) inFile(m *Member) error {
	if reg.Config().Kubernetes != nil {
		return admin.Conflict(fmt.Sprintf("what peer %s is and may do is said by its Peer object, which commands do not change", m.Name),
			"kubectl edit peers.postern.dev "+m.Name+", or kubectl delete")
	}
	return admin.Conflict(fmt.Sprintf("peer %s comes from %s, which commands do not change", m.Name, reg.Config().File),
		"edit the file, then send the gateway SIGHUP")
}

// CheckServices refuses a grant of services that this gateway does not have.
func (reg *Registry) CheckServices(what string, list []string) error {
	known := offered(reg.Config())
	for _, s := range list {
		if !slices.Contains(known, s) {
			return admin.Usage(fmt.Sprintf("%s: this gateway has no service %q", what, s), "it has "+strings.Join(known, ", "))
		}
	}
	return nil
}

// offered lists the services that can be granted. auth and apiServer can be granted before they are
// configured: the grant takes effect then.
func offered(cfg *config.Resolved) []string {
	list := []string{api.ServiceAuth, api.ServiceAPIServer}
	for _, n := range cfg.Services.Named {
		list = append(list, n.Name)
	}
	return list
}

// CheckLocal refuses addresses that cannot be listened on.
func CheckLocal(local map[string]string) error {
	for service, address := range local {
		// With a listener for auth every local user could have an identity issued.
		if service == api.ServiceAuth || service == api.ServiceGateway {
			return admin.Usage(fmt.Sprintf("local: %s is not for local listeners", service), "use apiServer or the name of one of the peer's services")
		}
		if service != api.ServiceAPIServer {
			if err := api.CheckName(service); err != nil {
				return admin.Usage("local: service: "+err.Error(), "use apiServer or the name of one of the peer's services")
			}
		}
		if address == "" {
			continue
		}
		l, err := api.ParseListen(address)
		switch {
		case err != nil:
			return admin.Usage(fmt.Sprintf("local %s: %v", service, err), "such as 127.0.0.1:7443")
		case service == api.ServiceAPIServer && !l.Plain():
			return admin.Usage(fmt.Sprintf("local %s: %s: an API server has one TCP port", service, l), "such as 127.0.0.1:7443")
		}
	}
	return nil
}

// Sorted returns the services of a list without duplicates; an empty list if there are none.
func Sorted(list []string) []string {
	out := append([]string{}, list...)
	slices.Sort(out)
	return slices.Compact(out)
}
