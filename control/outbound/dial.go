package outbound

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/roster"
)

// askAgain is how old a peer's hello must be before a missing service causes another: an
// application that retries must not make us ask each time.
const askAgain = 5 * time.Second

// dial connects to a port of a peer's service inside the tunnel.
func (s *Services) dial(ctx context.Context, t forward.Target) (forward.Conn, error) {
	to, err := s.find(ctx, t, api.TCP)
	if err != nil {
		return nil, err
	}
	c, err := s.o.Dial(ctx, to)
	if err != nil {
		// A verdict that it works may be minutes old. One that it does not is renewed soon enough.
		if t.Service == api.ServiceAPIServer {
			if f := s.checks.Finding(t.Peer, t.Service); f.Outcome == api.OK || f.Code == catalogue.Intermittent {
				s.checks.Wake(t.Peer)
			}
		}
		return nil, err
	}
	return c, nil
}

// findUDP returns the overlay address of a UDP port of a peer's service.
func (s *Services) findUDP(ctx context.Context, t forward.Target) (netip.AddrPort, error) {
	return s.find(ctx, t, api.UDP)
}

// find returns the overlay address of a port of a peer's service.
func (s *Services) find(ctx context.Context, t forward.Target, protocol api.Protocol) (netip.AddrPort, error) {
	name, service, nth := t.Peer, t.Service, t.Nth
	m := s.o.Peers.Load().ByName(name)
	switch {
	case m == nil:
		return netip.AddrPort{}, fmt.Errorf("there is no peer %s", name)
	case m.Pending:
		return netip.AddrPort{}, fmt.Errorf("peer %s waits for approval (postern peer approve %s)", name, name)
	case m.Stock:
		return netip.AddrPort{}, fmt.Errorf("peer %s is a plain WireGuard peer: it offers no services", name)
	}
	ports, err := s.servicePorts(ctx, m, service)
	switch {
	case err != nil:
		return netip.AddrPort{}, err
	case ports.Protocol != protocol:
		return netip.AddrPort{}, fmt.Errorf("service %s of peer %s is %s, and the listener here is %s (see `postern peer local --help`)", service, name, ports.Protocol, protocol)
	case nth >= ports.Len():
		return netip.AddrPort{}, fmt.Errorf("service %s of peer %s has %d ports, and the listener here has more", service, name, ports.Len())
	}
	return netip.AddrPortFrom(m.Address(), ports.First+uint16(nth)), nil
}

// servicePorts returns the overlay ports of a peer's service. Those of a named one are in the
// peer's hello, which is requested if there is none.
func (s *Services) servicePorts(ctx context.Context, m *roster.Member, service string) (api.Ports, error) {
	switch service {
	case api.ServiceAuth:
		return api.PortsOf(api.PortAuth), nil
	case api.ServiceAPIServer:
		return api.PortsOf(api.PortAPIServer), nil
	}
	h, known := s.o.Exchange.Hello(m.Key)
	ports, there := h.PortsOf(service)
	if !there && time.Since(h.At) > askAgain {
		if _, err := s.checks.Check(ctx, m.Name); err != nil {
			return api.Ports{}, err
		}
		h, known = s.o.Exchange.Hello(m.Key)
		ports, there = h.PortsOf(service)
	}
	if there {
		return ports, nil
	}
	if !known {
		return api.Ports{}, fmt.Errorf("peer %s has not answered yet, so the port of its service %s is not known", m.Name, service)
	}
	return api.Ports{}, fmt.Errorf("peer %s does not offer us a service %s (there: postern peer allow NAME …,%s)", m.Name, service, service)
}

// ServicePort returns the port of a peer's service inside the tunnel, if it is known and a single
// TCP port. Gateways in a cluster use it.
func (s *Services) ServicePort(name, service string) (uint16, bool) {
	m := s.o.Peers.Load().ByName(name)
	switch {
	case m == nil:
		return 0, false
	case service == api.ServiceAPIServer:
		return api.PortAPIServer, true
	}
	p, ok := s.o.Exchange.FollowedPorts(name, service)
	return p.First, ok && p.Plain()
}
