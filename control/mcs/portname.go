package mcs

import (
	"fmt"
	"strings"

	"github.com/postern-dev/postern/control/api"
)

// PortName returns the name of a port of a service of a cluster in counters, grants, lists and
// listeners: NAMESPACE/NAME:PORT, with /UDP, and with @HOSTNAME for one backend of a headless
// service.
func PortName(n Name, p Port, hostname string) string {
	name := n.String() + ":" + api.Ports{Protocol: p.Protocol, First: p.Port, Last: p.Port}.String()
	if hostname != "" {
		name += "@" + hostname
	}
	return name
}

// ParseName parses the name of a service.
func ParseName(s string) (Name, error) {
	if n := nameOf(s); n != (Name{}) {
		return n, nil
	}
	return Name{}, fmt.Errorf("%q is no name of a service (want NAMESPACE/NAME, such as shop/web)", s)
}

// NameOfPort returns the service of a NAMESPACE/NAME with or without a port.
func NameOfPort(s string) Name {
	s, _, _ = strings.Cut(s, ":")
	namespace, name, _ := strings.Cut(s, "/")
	return Name{Namespace: namespace, Name: name}
}

// IsPortName reports whether a name is that of a port of a service of a cluster, not of a named
// service.
func IsPortName(s string) bool { return strings.Contains(s, "/") }

// ParsePortName parses what [PortName] returns.
func ParsePortName(s string) (Name, api.Ports, error) {
	n := NameOfPort(s)
	_, port, _ := strings.Cut(s, ":")
	port, hostname, one := strings.Cut(port, "@")
	p, err := api.ParsePorts(port)
	if err != nil || p.First == 0 || !isLabel(n.Namespace) || !isLabel(n.Name) || one && !isLabel(hostname) ||
		PortName(n, Port{Protocol: p.Protocol, Port: p.First}, hostname) != s {
		return Name{}, api.Ports{}, fmt.Errorf("%q is no port of a service (want NAMESPACE/NAME:PORT, such as shop/web:80, shop/dns:53/UDP or, of one pod, shop/db:5432@db-0)", s)
	}
	return n, p, nil
}
