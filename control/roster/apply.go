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

// Apply makes a roster of what configuration, state directory and tickets say now, and puts
// it in force. An error means that they contradict each other and that nothing was changed.
//
// The order matters. The tunnel comes first, since it alone can refuse; then policy and
// services, which new connections ask; then what is open and no longer allowed is ended;
// only then do removed peers leave the tunnel, or they would not hear of it; then everybody
// else hears of it; and only when a removed peer can have nothing left under way is it
// forgotten.
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
	reg.cutOff(gone, next)
	if leaving {
		time.Sleep(ResetFlushDelay)
		if _, err := reg.setTunnel(next, nil); err != nil { // it was part of what was accepted
			reg.log.Error("failed to remove peers from the tunnel; their connections are refused", "error", err)
		}
	}
	for _, f := range reg.subscribers {
		f(old, next)
	}
	reg.noteConfigured(next) // once the keys before get no more identities, which would not be inherited
	for _, m := range gone {
		reg.forget(m, next)
	}
	return nil
}

// cutOff ends the connections that are no longer allowed, those of members that are gone first.
func (reg *Registry) cutOff(gone []*Member, next *Roster) {
	for _, m := range gone {
		n := reg.flows.ClosePeer(m.Name)
		if a := m.Address(); a.IsValid() && next.byAddr[a] == nil {
			reg.stack.AbortPeer(a) // what is closed and not finished, too
		}
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
	if n := reg.inbound.Reauthorize(); n > 0 {
		reg.log.Info("reset connections that are no longer allowed", "connections", n)
	}
}

// ResetFlushDelay is how long resets may take to leave through the tunnel before it is taken
// away: they are queued, encrypted and sent by others, within a millisecond or two.
const ResetFlushDelay = 100 * time.Millisecond

// busy are those of the members that have connections open.
func (reg *Registry) busy(members []*Member) []*Member {
	return slices.DeleteFunc(slices.Clone(members), func(m *Member) bool { return len(reg.flows.List(m.Name)) == 0 })
}

// setTunnel makes the roster's peers be those of the tunnel, and those that leave so long
// as there is something to tell them; leaving is false when they are in the way of the
// others.
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

// forget drops what was learned of a removed peer. Its key may come back by another name, and
// then what was learned by key stays.
func (reg *Registry) forget(m *Member, next *Roster) {
	reg.learning.drop(m.Key)
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

// nowhere is where a peer is tried that leaves.
func nowhere(peer.PublicKey) []netip.AddrPort { return nil }

// ProvenEndpoints are where the peer was heard from in this run or the last.
func (reg *Registry) ProvenEndpoints(k peer.PublicKey) []netip.AddrPort {
	return reg.store.Observed(k).Endpoints
}

// services are what the configuration offers. Auth is always there: it is where peers
// exchange versions and redeem tickets, and it decides by itself what it grants.
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
