package forward

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/postern-dev/postern/control/api"
)

// Service is a service that peers may reach at this gateway. Exactly one of Upstream, Backends and
// Handler is set.
type Service struct {
	// Name is auth, apiServer or the name of a named service.
	Name string
	// Ports are the ports inside the tunnel.
	Ports api.Ports
	// Upstream is the host:port that connections to the first port are forwarded to. Those to the
	// following ports are forwarded to the following ports there. A host name is resolved for each
	// connection or flow of datagrams.
	Upstream string
	// Backends are the backends of a service of this cluster. All its ports lead to them.
	Backends Backends
	// Handler serves TCP connections in this process.
	Handler Handler
	// ProxyProtocol sends an upstream, or a backend, a header with the client: the peer's overlay
	// address and port, and its name in the field [ProxyPeer].
	ProxyProtocol api.ProxyProtocol
}

// Backends selects where a connection or a flow of datagrams is forwarded to.
type Backends interface {
	// Pick returns a ready backend that is none of the tried ones, for a peer's client that uses
	// one of the service's ports, counted from 0. Its address is invalid if there is none.
	Pick(peer string, nth int, tried []netip.AddrPort) Backend
}

// Backend is a possible destination of connections to a service of this cluster.
type Backend struct {
	netip.AddrPort
	// Ready ends when the backend must get nothing new any more: the address may then belong to
	// another pod.
	Ready context.Context
}

// Handler serves an established connection and returns when it is done with it. When ctx ends the
// connection is reset.
type Handler interface {
	ServeConn(ctx context.Context, c Conn)
}

// check returns why s cannot be offered.
func (s Service) check() error {
	switch {
	case s.Name == "" || s.Ports.First == 0 || s.Ports.Len() < 1:
		return fmt.Errorf("service %q on port %s needs a name and a port", s.Name, s.Ports)
	case count(s.Upstream != "", s.Backends != nil, s.Handler != nil) != 1:
		return fmt.Errorf("service %s needs one of an upstream, backends and a handler", s.Name)
	case s.Handler != nil && s.Ports.Protocol == api.UDP:
		return fmt.Errorf("service %s: a handler serves connections, and UDP has none", s.Name)
	case s.ProxyProtocol != "" && (s.ProxyProtocol != api.ProxyV2 || s.Handler != nil || s.Ports.Protocol == api.UDP):
		return fmt.Errorf("service %s: the PROXY protocol %q is not for it", s.Name, s.ProxyProtocol)
	}
	return nil
}

func count(set ...bool) (n int) {
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}

// upstream returns the destination of a port of the service.
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

// offered indexes services by port and by name. It is not safe for concurrent use.
type offered struct {
	ports map[portOf]*Service
	names map[string]*Service
}

type portOf struct {
	udp  bool
	port uint16
}

func newOffered() *offered {
	return &offered{ports: map[portOf]*Service{}, names: map[string]*Service{}}
}

// offer returns an index of services, or an error if two share a port or a name.
func offer(services []Service) (*offered, error) {
	o := newOffered()
	for _, s := range services {
		if err := o.add(s); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// add adds a service. If it shares a port or a name with another, add returns an error and changes
// nothing.
func (o *offered) add(s Service) error {
	if err := s.check(); err != nil {
		return err
	}
	if other := o.names[s.Name]; other != nil {
		return fmt.Errorf("service %s is there twice, on ports %s and %s", s.Name, other.Ports, s.Ports)
	}
	for nth := range s.Ports.Len() {
		k := portOf{s.Ports.Protocol == api.UDP, s.Ports.First + uint16(nth)}
		if other := o.ports[k]; other != nil {
			return fmt.Errorf("services %s and %s share port %d", other.Name, s.Name, k.port)
		}
	}
	o.names[s.Name] = &s
	for nth := range s.Ports.Len() {
		o.ports[portOf{s.Ports.Protocol == api.UDP, s.Ports.First + uint16(nth)}] = &s
	}
	return nil
}

func (o *offered) remove(name string) {
	s := o.names[name]
	if s == nil {
		return
	}
	delete(o.names, name)
	for nth := range s.Ports.Len() {
		delete(o.ports, portOf{s.Ports.Protocol == api.UDP, s.Ports.First + uint16(nth)})
	}
}
