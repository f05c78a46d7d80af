// Package outbound makes the services of peers available: it decides which local listeners there
// are, keeps their ports, and dials inside the tunnel for them.
package outbound

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/exchange"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel/wake"
)

// Options configure Services.
type Options struct {
	Store    *state.Store
	Peers    *roster.Registry
	Exchange *exchange.Exchange
	Flows    *forward.Flows
	// Dial connects to an address inside the tunnel.
	Dial func(ctx context.Context, to netip.AddrPort) (*netstack.Conn, error)
	// Admit returns an error if a client may not use a listener for a peer's services; nil admits
	// everyone. It is not asked about listeners that were put on the loopback interface.
	Admit func(peer string, by api.Protocol, from netip.AddrPort) error
	// Known is that of [forward.OutboundOptions].
	Known func(peer string, from netip.AddrPort) bool
	// Host is where listeners without an address listen; the zero value is 127.0.0.1.
	Host   netip.Addr
	Audit  *audit.Log
	Logger *slog.Logger
}

// Checks provides the checks' findings about peers.
type Checks interface {
	// Finding returns the latest one about a target.
	Finding(peer, target string) verdict.Finding
	// Check checks a peer now, Wake soon.
	Check(ctx context.Context, peer string) (check.Round, error)
	Wake(peer string)
}

// Services are the services of peers, as reached from here. It is safe for concurrent use.
type Services struct {
	o      Options
	out    *forward.Outbound
	checks Checks // since Attach
	// due holds at most one request to store the ports of listeners.
	due wake.Signal
	// unstored are the ports that failed to be stored and were logged; guarded by the registry's
	// lock.
	unstored map[state.Listener]uint16
	last     []forward.LocalState // when it was closed
}

// New returns Services without listeners.
func New(o Options) *Services {
	s := &Services{o: o, due: wake.New(), unstored: map[state.Listener]uint16{}}
	out := forward.OutboundOptions{Dial: s.dial, Find: s.findUDP, Host: o.Host, Logger: o.Logger, Audit: o.Audit}
	if o.Admit != nil {
		out.Admit = func(l forward.Local, by api.Protocol, from netip.AddrPort) error {
			if onLoopback(l) {
				return nil
			}
			return o.Admit(l.Peer, by, from)
		}
	}
	if o.Known != nil {
		out.Known = func(l forward.Local, from netip.AddrPort) bool { return onLoopback(l) || o.Known(l.Peer, from) }
	}
	s.out = forward.NewOutbound(o.Flows, out)
	return s
}

// onLoopback reports whether an operator has put a listener on the loopback interface: it is for
// the programs there.
func onLoopback(l forward.Local) bool {
	at, err := api.ParseListen(l.Address)
	return err == nil && at.Addr.IsLoopback()
}

// Attach sets the checks, before there are peers.
func (s *Services) Attach(c Checks) { s.checks = c }

// Follow opens the listeners that peers and grants ask for. It is for [roster.Registry.Subscribe].
func (s *Services) Follow(_, _ *roster.Roster) {
	s.Relocate()
	s.due.Set()
}

// Relocate is Follow after the cluster has followed a peer's new offers. The caller holds the
// registry's lock.
func (s *Services) Relocate() {
	s.out.SetLocals(s.locals(s.o.Peers.Load(), s.o.Peers.Config()))
}

// locals returns the local listeners for services of peers. A port that was chosen for one stays
// its own.
func (s *Services) locals(r *roster.Roster, cfg *config.Resolved) []forward.Local {
	var out []forward.Local
	for _, m := range r.Members() {
		wanted := s.wantedLocals(m, cfg)
		for _, service := range slices.Sorted(maps.Keys(wanted)) {
			if mcs.IsPortName(service) {
				continue // it is imported
			}
			out = append(out, forward.Local{Peer: m.Name, Service: service, Address: wanted[service], Port: s.o.Store.ListenerPort(m.Name, service)})
		}
	}
	return out
}

// wantedLocals maps services of a peer to listen addresses; "" means any free port. In a cluster
// whose peers get Services there is a listener behind each: one for the API server, and one for
// each other offer, up to a limit.
func (s *Services) wantedLocals(m *roster.Member, cfg *config.Resolved) map[string]string {
	if cfg.Kubernetes == nil || !cfg.Kubernetes.PeerServices || m.Stock || m.Pending {
		return m.Local
	}
	wanted := map[string]string{}
	services, _ := exchange.Automatic(s.o.Exchange.Followed(m))
	for _, service := range services {
		// A Service supports only a single TCP port.
		if p, known := s.o.Exchange.FollowedPorts(m.Name, service); !known || p.Plain() {
			wanted[service] = ""
		}
	}
	maps.Copy(wanted, m.Local)
	return wanted
}

// Due receives a value when listeners have chosen ports that are to be stored. It is done in the
// background, since the file has all peers' ports.
func (s *Services) Due() <-chan struct{} { return s.due }

// KeepPorts stores the ports that listeners have chosen.
func (s *Services) KeepPorts() {
	s.o.Peers.LearnAll(func(*roster.Roster) { s.rememberPorts(s.out.Locals()) })
}

// Close closes the listeners. Accepted connections continue until the flows are drained.
func (s *Services) Close() {
	s.last = s.out.Locals()
	s.out.Close()
}

// KeepLast stores the ports as of Close, in case KeepPorts has not. Nothing else may change
// anything by then.
func (s *Services) KeepLast() { s.rememberPorts(s.last) }

// Locals returns the listeners.
func (s *Services) Locals() []forward.LocalState { return s.out.Locals() }

// Counters count connections, UDPCounters UDP flows.
func (s *Services) Counters() forward.Counters    { return s.out.Counters() }
func (s *Services) UDPCounters() forward.Counters { return s.out.UDPCounters() }

// rememberPorts stores the ports that listeners have chosen, so that kubeconfigs stay valid. It is
// called with the registry's lock held. A failure is retried repeatedly, but logged once.
func (s *Services) rememberPorts(locals []forward.LocalState) {
	r, found := s.o.Peers.Load(), map[state.Listener]uint16{}
	for _, l := range locals {
		m := r.ByName(l.Peer)
		if l.Err != nil || m == nil || m.Local[l.Service] != "" {
			continue
		}
		a, err := netip.ParseAddrPort(l.Address)
		if err == nil && s.o.Store.ListenerPort(l.Peer, l.Service) != a.Port() {
			found[state.Listener{Peer: l.Peer, Service: l.Service}] = a.Port()
		}
	}
	if len(found) == 0 {
		return
	}
	err := s.o.Store.SetListenerPorts(found)
	for l, port := range found {
		switch {
		case err == nil:
			delete(s.unstored, l)
		case s.unstored[l] != port:
			s.unstored[l] = port
			s.o.Logger.Warn("failed to store a local listener's port; kubeconfigs may need rewriting after a restart",
				"peer", l.Peer, "service", l.Service, "port", port, "error", err)
		}
	}
}
