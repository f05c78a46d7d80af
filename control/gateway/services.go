package gateway

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/exchange"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
)

// setLocals has the listeners that peers, grants and offers ask for. It is for one who may change
// the peers.
func (g *Gateway) setLocals() {
	g.outbound.SetLocals(g.locals(g.peers.Load(), g.peers.Config()))
}

// locals are the listeners here that lead to services of peers. A port that was found
// for one stays its own.
func (g *Gateway) locals(r *roster.Roster, cfg *config.Resolved) []forward.Local {
	var out []forward.Local
	for _, m := range r.Members() {
		wanted := g.wantedLocals(m, cfg)
		for _, service := range slices.Sorted(maps.Keys(wanted)) {
			l := forward.Local{Peer: m.Name, Service: service, Address: wanted[service]}
			if port := g.store.ListenerPort(m.Name, service); port != 0 && l.Address == "" {
				l.Remembered = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port).String()
			}
			out = append(out, l)
		}
	}
	return out
}

// wantedLocals maps services of a peer to addresses to listen on; "" is any free port. In
// a cluster whose peers get Services there is a listener behind each of those: one for the
// API server, and one for whatever else the peer offers, up to a bound.
func (g *Gateway) wantedLocals(m *roster.Member, cfg *config.Resolved) map[string]string {
	if cfg.Kubernetes == nil || !cfg.Kubernetes.PeerServices || m.Stock || m.Pending {
		return m.Local
	}
	wanted := map[string]string{}
	services, _ := exchange.Automatic(g.exchange.Followed(m))
	for _, service := range services {
		wanted[service] = ""
	}
	maps.Copy(wanted, m.Local)
	return wanted
}

// portsSoon has the ports of listeners kept that have just found one. Nobody waits for that:
// the file has those of all peers in it.
func (g *Gateway) portsSoon() {
	select {
	case g.portsDue <- struct{}{}:
	default: // It is to be done already.
	}
}

// rememberPorts keeps the ports that listeners found, so that kubeconfigs stay valid. It
// is called with the registry's lock held. A port that cannot be stored is tried again and again,
// but complained of once.
func (g *Gateway) rememberPorts(locals []forward.LocalState) {
	r, found := g.peers.Load(), map[state.Listener]uint16{}
	for _, l := range locals {
		m := r.ByName(l.Peer)
		if l.Err != nil || m == nil || m.Local[l.Service] != "" {
			continue
		}
		a, err := netip.ParseAddrPort(l.Address)
		if err == nil && g.store.ListenerPort(l.Peer, l.Service) != a.Port() {
			found[state.Listener{Peer: l.Peer, Service: l.Service}] = a.Port()
		}
	}
	if len(found) == 0 {
		return
	}
	err := g.store.SetListenerPorts(found)
	for l, port := range found {
		switch {
		case err == nil:
			delete(g.unstored, l)
		case g.unstored[l] != port:
			g.unstored[l] = port
			g.log.Warn("the port of a local listener cannot be remembered; kubeconfigs may need to be written again after a restart",
				"peer", l.Peer, "service", l.Service, "port", port, "error", err)
		}
	}
}
