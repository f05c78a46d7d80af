package forward

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Service is what peers may reach at this gateway. Exactly one of Upstream and Handler
// is set.
type Service struct {
	// Name is auth, apiServer or the name of a named service.
	Name string
	// Port is the TCP port inside the tunnel.
	Port uint16
	// Upstream is the host:port that connections are carried to. A host name is resolved
	// for each connection.
	Upstream string
	// Handler serves connections in this process.
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
	case s.Name == "" || s.Port == 0:
		return fmt.Errorf("service %q on port %d needs a name and a port", s.Name, s.Port)
	case (s.Upstream == "") == (s.Handler == nil):
		return fmt.Errorf("service %s needs either an upstream or a handler", s.Name)
	}
	return nil
}

// byPort indexes services and refuses two on one port or of one name.
func byPort(services []Service) (map[uint16]Service, error) {
	m := make(map[uint16]Service, len(services))
	names := make(map[string]uint16, len(services))
	for _, s := range services {
		if err := s.check(); err != nil {
			return nil, err
		}
		if other, ok := m[s.Port]; ok {
			return nil, fmt.Errorf("services %s and %s share port %d", other.Name, s.Name, s.Port)
		}
		if port, ok := names[s.Name]; ok {
			return nil, fmt.Errorf("service %s is there twice, on ports %d and %d", s.Name, port, s.Port)
		}
		m[s.Port], names[s.Name] = s, s.Port
	}
	return m, nil
}

// gone lists the names in old that are not in now.
func gone(old, now map[uint16]Service) []string {
	left := make(map[string]bool)
	for s := range maps.Values(now) {
		left[s.Name] = true
	}
	var out []string
	for s := range maps.Values(old) {
		if !left[s.Name] {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return out
}
