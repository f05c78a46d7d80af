package api

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Protocol is a service's transport protocol; empty is TCP.
type Protocol string

// Protocols of a service.
const (
	TCP Protocol = "TCP"
	UDP Protocol = "UDP"
)

// MaxPorts is the maximum number of ports of a service. Some media services have a few hundred.
const MaxPorts = 1024

// Ports is a range of ports of a service. As text it is 5000, 5000-5010, 53/UDP or 5000-5010/UDP.
type Ports struct {
	Protocol    Protocol
	First, Last uint16
}

// ParsePorts parses Ports. A range may have at most [MaxPorts].
func ParsePorts(s string) (Ports, error) {
	numbers, protocol, named := strings.Cut(s, "/")
	p := Ports{Protocol: TCP}
	if named {
		p.Protocol = Protocol(protocol)
	}
	if p.Protocol != TCP && p.Protocol != UDP {
		return Ports{}, fmt.Errorf("%.40q is not a protocol (want TCP or UDP)", protocol)
	}
	first, last, ranged := strings.Cut(numbers, "-")
	if !ranged {
		last = first
	}
	var err error
	if p.First, err = parsePort(first); err == nil {
		p.Last, err = parsePort(last)
	}
	switch {
	case err != nil:
		return Ports{}, fmt.Errorf("%.40q is neither a port nor a range of ports (want such as 5000 or 5000-5010)", numbers)
	case p.Last < p.First || p.First == 0 && ranged:
		return Ports{}, fmt.Errorf("%s is no range of ports (want the lower one first, from 1)", p)
	case p.Len() > MaxPorts:
		return Ports{}, fmt.Errorf("%s has %d ports, and a service has at most %d", p, p.Len(), MaxPorts)
	}
	return p, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}

// PortsOf returns the Ports of one TCP port.
func PortsOf(port uint16) Ports { return Ports{TCP, port, port} }

// Plain reports whether p is a single TCP port, the only kind that older gateways know.
func (p Ports) Plain() bool { return p.Protocol != UDP && p.First == p.Last }

// Len returns the number of ports.
func (p Ports) Len() int { return int(p.Last) - int(p.First) + 1 }

// Overlaps reports whether a port is in both.
func (p Ports) Overlaps(q Ports) bool {
	return (p.Protocol == UDP) == (q.Protocol == UDP) && p.First <= q.Last && q.First <= p.Last
}

// String implements fmt.Stringer; [ParsePorts] parses it.
func (p Ports) String() string {
	s := strconv.Itoa(int(p.First))
	if p.Last != p.First {
		s += "-" + strconv.Itoa(int(p.Last))
	}
	if p.Protocol == UDP {
		s += "/UDP"
	}
	return s
}

// ListenAddress is the address of a local listener: IP:port or IP:first-last, with /UDP appended
// for UDP. Port 0 chooses a free one.
type ListenAddress struct {
	Addr netip.Addr
	Ports
}

// ParseListen parses a ListenAddress.
func ParseListen(s string) (ListenAddress, error) {
	colon := strings.LastIndexByte(s, ':')
	a, err := netip.ParseAddrPort(s[:max(colon, 0)] + ":0")
	if err != nil || colon < 0 {
		return ListenAddress{}, fmt.Errorf("%q is not IP:port to listen on (such as 127.0.0.1:7443)", s)
	}
	ports, err := ParsePorts(s[colon+1:])
	if err != nil {
		return ListenAddress{}, fmt.Errorf("%q is not IP:port to listen on (such as 127.0.0.1:7443): %w", s, err)
	}
	return ListenAddress{a.Addr(), ports}, nil
}

// String implements fmt.Stringer; [ParseListen] parses it.
func (l ListenAddress) String() string {
	host := l.Addr.String()
	if l.Addr.Is6() {
		host = "[" + host + "]"
	}
	return host + ":" + l.Ports.String()
}

// Overlaps reports whether both cannot exist together: 0.0.0.0 covers all IPv4 addresses, and ::
// all addresses.
func (l ListenAddress) Overlaps(m ListenAddress) bool {
	has := func(a, b netip.Addr) bool { return a == b || a.IsUnspecified() && (a.Is6() || b.Is4()) }
	return (has(l.Addr, m.Addr) || has(m.Addr, l.Addr)) && l.Ports.Overlaps(m.Ports)
}

// At returns the address of the i'th port of the range, from 0.
func (l ListenAddress) At(i int) netip.AddrPort { return netip.AddrPortFrom(l.Addr, l.First+uint16(i)) }
