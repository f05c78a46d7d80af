package gateway

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/tunnel/peer"
)

// change does something that alters who the peers are, and applies the outcome. When do
// fails nothing is applied.
func (g *Gateway) change(do func() error) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	if err := do(); err != nil {
		return err
	}
	return g.apply(g.cfg)
}

// apply brings every part to what configuration, state directory and tickets say now. An
// error means that they contradict each other and that nothing was changed. It is called
// with changing held.
func (g *Gateway) apply(cfg *config.Resolved) error {
	next, err := makeRoster(cfg.Peers, g.store.Peers(), g.book.OneTimePeers(time.Now()))
	if err != nil {
		return err
	}
	services := g.services(cfg)
	if err := g.plane.engine.SetPeers(next.peers(g.provenEndpoints)); err != nil {
		return fmt.Errorf("apply the peers: %w", err)
	}
	old := g.roster.Swap(next)
	g.cfg = cfg
	g.track(next)
	if err := g.inbound.SetServices(services); err != nil {
		return fmt.Errorf("apply the services: %w", err)
	}
	for _, m := range old.members {
		if now := next.byName[m.name]; now == nil || now.key != m.key {
			g.forget(m)
		}
	}
	if n := g.inbound.Reauthorize(); n > 0 {
		g.log.Info("connections that are no longer allowed were reset", "connections", n)
	}
	g.outbound.SetLocals(g.locals(next))
	g.rememberPorts()
	g.checks.SetPeers(next.names())
	g.keepers.setPeers(next)
	return nil
}

// forget ends what a removed peer had open. Its key may come back by another name.
func (g *Gateway) forget(m *member) {
	n := g.flows.ClosePeer(m.name)
	g.hellos.drop(m.key)
	g.journal.drop(m.key)
	g.log.Info("peer is gone", "peer", m.name, "connectionsReset", n)
}

// track notes since when each peer is tried, and publishes what status shows.
func (g *Gateway) track(r *roster) {
	since := map[string]time.Time{}
	for _, m := range r.members {
		if at, ok := g.since[m.name]; ok {
			since[m.name] = at
		} else {
			since[m.name] = time.Now()
		}
	}
	g.since = since
	g.publish()
}

func (g *Gateway) publish() {
	g.running.Store(&running{cfg: g.cfg, since: g.since, reloads: maps.Clone(g.reloads)})
}

// provenEndpoints are where the peer was heard from in this run or the last.
func (g *Gateway) provenEndpoints(k peer.PublicKey) []netip.AddrPort {
	return g.store.Observed(k).Endpoints
}

// services are what the configuration offers. Auth is always there: it is where peers
// exchange versions and redeem tickets, and it decides by itself what it grants.
func (g *Gateway) services(cfg *config.Resolved) []forward.Service {
	list := []forward.Service{{Name: api.ServiceAuth, Port: api.PortAuth, Handler: g.auth.listener}}
	if a := cfg.Services.APIServer; a != nil {
		list = append(list, forward.Service{Name: api.ServiceAPIServer, Port: api.PortAPIServer, Upstream: a.Address})
	}
	for _, n := range cfg.Services.Named {
		list = append(list, forward.Service{Name: n.Name, Port: n.Port, Upstream: n.Address})
	}
	return list
}

// locals are the listeners here that lead to services of peers. A port that was found
// for one stays its own.
func (g *Gateway) locals(r *roster) []forward.Local {
	var out []forward.Local
	for _, m := range r.members {
		for _, service := range slices.Sorted(maps.Keys(m.local)) {
			l := forward.Local{Peer: m.name, Service: service, Address: m.local[service]}
			if port := g.store.ListenerPort(m.name, service); port != 0 && l.Address == "" {
				l.Remembered = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port).String()
			}
			out = append(out, l)
		}
	}
	return out
}

// rememberPorts keeps the ports that listeners found, so that kubeconfigs stay valid.
func (g *Gateway) rememberPorts() {
	for _, l := range g.outbound.Locals() {
		m := g.roster.Load().byName[l.Peer]
		if l.Err != nil || m == nil || m.local[l.Service] != "" {
			continue
		}
		_, text, err := net.SplitHostPort(l.Address)
		if err != nil {
			continue
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || g.store.ListenerPort(l.Peer, l.Service) == uint16(port) {
			continue
		}
		if err := g.store.SetListenerPort(l.Peer, l.Service, uint16(port)); err != nil {
			g.log.Warn("the port of a local listener cannot be remembered; kubeconfigs may need to be written again after a restart",
				"peer", l.Peer, "service", l.Service, "port", port, "error", err)
		}
	}
}
