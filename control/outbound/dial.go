package outbound

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/roster"
)

// askAgain is how old a peer's hello may be before a service that is not in it is asked
// for: an application that tries again and again must not make us ask each time.
const askAgain = 5 * time.Second

// dial connects to a service of a peer inside the tunnel.
func (s *Services) dial(ctx context.Context, name, service string) (forward.Conn, error) {
	m := s.o.Peers.Load().ByName(name)
	switch {
	case m == nil:
		return nil, fmt.Errorf("there is no peer %s", name)
	case m.Pending:
		return nil, fmt.Errorf("peer %s waits for approval (postern peer approve %s)", name, name)
	case m.Stock:
		return nil, fmt.Errorf("peer %s is a plain WireGuard peer: it offers no services", name)
	}
	port, err := s.servicePort(ctx, m, service)
	if err != nil {
		return nil, err
	}
	c, err := s.o.Dial(ctx, netip.AddrPortFrom(m.Address(), port))
	if err != nil {
		// The verdict may be minutes old. Once it is no longer ok it is renewed soon enough.
		if service == api.ServiceAPIServer && s.checks.Finding(name, api.ServiceAPIServer).Outcome == api.OK {
			s.checks.Wake(name)
		}
		return nil, err
	}
	return c, nil
}

// servicePort is the overlay port of a peer's service. That of a named one is in the
// peer's hello, which is asked for when there has been none.
func (s *Services) servicePort(ctx context.Context, m *roster.Member, service string) (uint16, error) {
	switch service {
	case api.ServiceAuth:
		return api.PortAuth, nil
	case api.ServiceAPIServer:
		return api.PortAPIServer, nil
	}
	h, known := s.o.Exchange.Hello(m.Key)
	if h.Ports[service] == 0 && time.Since(h.At) > askAgain {
		if _, err := s.checks.Check(ctx, m.Name); err != nil {
			return 0, err
		}
		h, known = s.o.Exchange.Hello(m.Key)
	}
	if port := h.Ports[service]; port != 0 {
		return port, nil
	}
	if !known {
		return 0, fmt.Errorf("peer %s has not answered yet, so the port of its service %s is not known", m.Name, service)
	}
	return 0, fmt.Errorf("peer %s does not offer us a service %s (there: postern peer allow NAME …,%s)", m.Name, service, service)
}

// ServicePort is the port of a peer's service inside the tunnel, if it is known. It is for a
// gateway in a cluster.
func (s *Services) ServicePort(name, service string) (uint16, bool) {
	m := s.o.Peers.Load().ByName(name)
	switch {
	case m == nil:
		return 0, false
	case service == api.ServiceAPIServer:
		return api.PortAPIServer, true
	}
	return s.o.Exchange.FollowedPort(name, service)
}
