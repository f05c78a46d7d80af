package forward

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/control/api"
)

// Service is what peers may reach at this gateway. Exactly one of Upstream and Handler
// is set.
type Service struct {
	// Name is auth, apiServer or the name of a named service.
	Name string
	// Ports are those inside the tunnel.
	Ports api.Ports
	// Upstream is the host:port that connections to the first port are carried to; those to
	// the ports that follow are carried to the ports that follow there. A host name is resolved
	// for each connection, or flow of datagrams.
	Upstream string
	// Handler serves TCP connections in this process.
	Handler Handler
}

// Handler serves an established connection and returns when it is done with it. When ctx
// ends the connection has been reset.
type Handler interface {
	ServeConn(ctx context.Context, c Conn)
}

// check reports why s cannot be offered.
func (s Service) check() error {
	switch {
	case s.Name == "" || s.Ports.First == 0 || s.Ports.Len() < 1:
		return fmt.Errorf("service %q on port %s needs a name and a port", s.Name, s.Ports)
	case (s.Upstream == "") == (s.Handler == nil):
		return fmt.Errorf("service %s needs either an upstream or a handler", s.Name)
	case s.Handler != nil && s.Ports.Protocol == api.UDP:
		return fmt.Errorf("service %s: a handler serves connections, and UDP has none", s.Name)
	}
	return nil
}

// upstream is where a port of the service leads.
func (s Service) upstream(port uint16) string {
	nth := port - s.Ports.First
	if nth == 0 {
		return s.Upstream
	}
	host, first, err := net.SplitHostPort(s.Upstream)
	if err != nil {
		return s.Upstream // and dialling it tells
	}
	n, _ := strconv.ParseUint(first, 10, 16)
	return net.JoinHostPort(host, strconv.FormatUint(n+uint64(nth), 10))
}

// offered are the services of a gateway.
type offered []Service

// offer refuses services that share a port or a name.
func offer(services []Service) (offered, error) {
	for i, s := range services {
		if err := s.check(); err != nil {
			return nil, err
		}
		for _, other := range services[:i] {
			switch {
			case other.Ports.Overlaps(s.Ports):
				return nil, fmt.Errorf("services %s and %s share port %d", other.Name, s.Name, max(other.Ports.First, s.Ports.First))
			case other.Name == s.Name:
				return nil, fmt.Errorf("service %s is there twice, on ports %s and %s", s.Name, other.Ports, s.Ports)
			}
		}
	}
	return slices.Clone(services), nil
}

// at is the service of a port.
func (o offered) at(protocol api.Protocol, port uint16) (Service, bool) {
	i := slices.IndexFunc(o, func(s Service) bool {
		return s.Ports.Overlaps(api.Ports{Protocol: protocol, First: port, Last: port})
	})
	if i < 0 {
		return Service{}, false
	}
	return o[i], true
}

// has reports whether there is a service of that name.
func (o offered) has(name string) bool {
	return slices.ContainsFunc(o, func(s Service) bool { return s.Name == name })
}
