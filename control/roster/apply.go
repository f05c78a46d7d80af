package roster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Apply makes a roster from the configuration, the state directory and the tickets, and puts it
// into force. On an error they contradict each other, and nothing has changed.
//
// The order matters. The tunnel comes first, since only it can refuse. Then policy and services,
// which new connections consult. Then open connections that are no longer allowed are reset. Only
// then do removed peers leave the tunnel, since they would not get the resets otherwise. Then the
// subscribers are notified. A removed peer's data is deleted last, when nothing of it can be in
// flight.
func (c *Change) Apply(cfg *config.Resolved) error {
	reg := c.reg
	next, err := Make(reg.publicKey, cfg.Peers, reg.store.Peers(), reg.book.OneTimePeers(time.Now()))
	if err != nil {
		return err
	}
	next.namespace = reg.o.Namespace
	old := reg.Load()
	if err := reg.freeIdentities(old, next); err != nil {
		if !old.Void() {
			return err
		}
		reg.log.Warn("peer gets no identity: its name belongs to another key", "error", err) // and the gateway starts
	}
	gone := old.Without(next)
	leaving, err := reg.setTunnel(next, reg.busy(gone))
	if err != nil {
		return fmt.Errorf("apply the peers: %w", err)
	}
	if err := reg.inbound.SetServices(reg.services(cfg)); err != nil {
		if _, undo := reg.setTunnel(old, nil); undo != nil {
			reg.log.Error("failed to roll back the peers", "error", undo)
		}
		return fmt.Errorf("apply the services: %w", err)
	}
	reg.flows.SetPeerRate(cfg.ConnectionRate)
	reg.set(next, cfg)
	reg.cutOff(gone, old, next)
	if leaving {
		time.Sleep(ResetFlushDelay)
		if _, err := reg.setTunnel(next, nil); err != nil { // it was part of the accepted set
			reg.log.Error("failed to remove peers from the tunnel; their connections are refused", "error", err)
		}
	}
	for _, f := range reg.subscribers {
		f(old, next)
	}
	reg.noteConfigured(next) // once the old keys get no more identities, which would not be inherited
	for _, m := range gone {
		reg.forget(m, next)
	}
	return nil
}

// cutOff resets the connections that are no longer allowed, those of removed members first.
func (reg *Registry) cutOff(gone []*Member, old, next *Roster) {
	for _, m := range gone {
		n := reg.flows.ClosePeer(m.Name)
		switch {
		case !m.Succeeded(next):
			reg.log.Info("peer removed", "peer", m.Name, "connectionsReset", n)
		case m.FromFile:
			k := next.ByName(m.Name).Key
			reg.o.Audit.Record(context.Background(), audit.Rotate, audit.Peer(m.Name), audit.PublicKey(k), audit.Reason("configured"))
			reg.log.Warn("key of a configured peer changed; certificates issued to the old key stay valid until they expire", "peer", m.Name,
				"publicKey", k.String(), "fingerprint", peer.Fingerprint(k), "before", peer.Fingerprint(m.Key), "connectionsReset", n)
		}
	}
	// Also what is closed and not finished, or who has the address next would get it.
	reg.stack.Abort(func(a netip.Addr) bool { return old.loses(a, next) })
	if n := reg.inbound.Reauthorize(); n > 0 {
		reg.log.Info("reset connections that are no longer allowed", "connections", n)
	}
}

// ResetFlushDelay is how long resets may take to leave through the tunnel before it is closed:
// other goroutines queue, encrypt and send them within a millisecond or two.
const ResetFlushDelay = 100 * time.Millisecond

// busy returns the members with open connections.
func (reg *Registry) busy(members []*Member) []*Member {
	return slices.DeleteFunc(slices.Clone(members), func(m *Member) bool { return len(reg.flows.List(m.Name)) == 0 })
}

// setTunnel sets the tunnel's peers to the roster's, plus those that are leaving while they must
// still be told. leaving is false if the latter conflict with the former.
func (reg *Registry) setTunnel(r *Roster, leave []*Member) (leaving bool, err error) {
	peers := r.peers(reg.ProvenEndpoints)
	if len(leave) > 0 {
		all := slices.Clone(peers)
		for _, m := range leave {
			all = append(all, m.tunnel(nowhere))
		}
		if reg.tunnel.SetPeers(all) == nil {
			return true, nil
		}
	}
	return false, reg.tunnel.SetPeers(peers)
}

// forget deletes what was learned about a removed peer. If its key stays under another name, what
// was learned about the key stays.
func (reg *Registry) forget(m *Member, next *Roster) {
	if next.ByName(m.Name) == nil {
		reg.learning.drop(m.Name)
	}
	if next.ByKey(m.Key) != nil {
		return
	}
	name := m.Name
	if m.Succeeded(next) {
		name = "" // it has another key, and the ports that are its own
	}
	if err := reg.store.Forget(name, m.Key); err != nil {
		reg.log.Warn("failed to delete what was stored about a removed peer", "peer", m.Name, "error", err)
	}
}

// nowhere returns the endpoints of a leaving peer: none.
func nowhere(peer.PublicKey) []netip.AddrPort { return nil }

// ProvenEndpoints returns where the peer was heard in this run or the last.
func (reg *Registry) ProvenEndpoints(k peer.PublicKey) []netip.AddrPort {
	return reg.store.Observed(k).Endpoints
}

// services returns the configured services. Auth is always included: peers exchange versions and
// redeem tickets there, and it does its own authorisation.
func (reg *Registry) services(cfg *config.Resolved) []forward.Service {
	list := []forward.Service{{Name: api.ServiceAuth, Ports: api.PortsOf(api.PortAuth), Handler: reg.o.Auth}}
	if a := cfg.Services.APIServer; a != nil {
		list = append(list, forward.Service{Name: api.ServiceAPIServer, Ports: api.PortsOf(api.PortAPIServer), Upstream: a.Address})
	}
	for _, n := range cfg.Services.Named {
		list = append(list, forward.Service{Name: n.Name, Ports: n.Ports, Upstream: n.Address, ProxyProtocol: n.ProxyProtocol})
	}
	return list
}
