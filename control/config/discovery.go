package config

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// DefaultKeepalive is how often an idle path is probed: below the 30 s after which the
	// shortest-lived NAT mappings end, and at most 1 MB a day.
	DefaultKeepalive = 20 * time.Second
	minKeepalive     = time.Second
	maxKeepalive     = 60 * time.Second
	// maxTURNServers bounds the allocations that a gateway maintains.
	maxTURNServers = 4
)

// Discovery says how this gateway is found and finds its paths. Addresses are host:port.
type Discovery struct {
	Advertise   []string
	STUNServers []string
	TURNServers []relay.Server
	// Exclude are ranges in which nothing is announced or dialled.
	Exclude []netip.Prefix
	// Keepalive is how often an idle path is probed.
	Keepalive   time.Duration
	PortMapping PortMapping
	DNS         DNS
	LAN         LAN
}

// Modes of port mapping.
const (
	PortMappingAuto = "auto"
	PortMappingOff  = "off"
)

// PortMapping configures port mapping. If Router is invalid it is the router of the default route.
type PortMapping struct {
	Enabled bool
	Router  netip.Addr
}

// fillDiscovery sets what is unset.
func (c *checker) fillDiscovery(d *api.Discovery) {
	// Port mapping must be requested. Naming the router does so; in a cluster that is the only way,
	// since a pod's default route leads to its node.
	if d.PortMapping.Mode == "" {
		d.PortMapping.Mode = PortMappingOff
		if d.PortMapping.Router != "" {
			d.PortMapping.Mode = PortMappingAuto
		}
	}
	if d.Keepalive == 0 && !c.given("spec.discovery.keepalive") {
		d.Keepalive = api.Duration(DefaultKeepalive)
	}
	if d.LAN.TTL == 0 && !c.given("spec.discovery.lan.ttl") {
		d.LAN.TTL = api.Duration(lan.DefaultTTL)
	}
	for i := range d.TURNServers {
		if d.TURNServers[i].Transport == "" {
			d.TURNServers[i].Transport = relay.TransportAuto
		}
	}
}

func (c *checker) discovery(d *api.Discovery) Discovery {
	const at = "spec.discovery"
	out := Discovery{Advertise: d.Advertise, STUNServers: d.STUNServers, Keepalive: time.Duration(d.Keepalive)}
	for i, a := range d.Advertise {
		c.dialAddress(fmt.Sprintf("%s.advertise[%d]", at, i), a)
	}
	for i, a := range d.STUNServers {
		c.dialAddress(fmt.Sprintf("%s.stunServers[%d]", at, i), a)
	}
	if len(d.TURNServers) > maxTURNServers {
		c.fail(at+".turnServers", "%d servers, and at most %d are used (name the nearest)", len(d.TURNServers), maxTURNServers)
	}
	for i, t := range d.TURNServers {
		out.TURNServers = append(out.TURNServers, c.turnServer(fmt.Sprintf("%s.turnServers[%d]", at, i), t))
	}
	for i, s := range d.Exclude {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			c.fail(fmt.Sprintf("%s.exclude[%d]", at, i), "%q is not a range such as 10.244.0.0/16", s)
		case p.Bits() == 0:
			c.fail(fmt.Sprintf("%s.exclude[%d]", at, i), "%q excludes every address (name the ranges of pods and Services)", s)
		default:
			out.Exclude = append(out.Exclude, p.Masked())
		}
	}
	if out.Keepalive < minKeepalive || out.Keepalive > maxKeepalive {
		c.fail(at+".keepalive", "%s is outside %s to %s (NAT mappings end after as little as 30s)", out.Keepalive, minKeepalive, maxKeepalive)
	}
	out.PortMapping = c.portMapping(at+".portMapping", d.PortMapping)
	out.DNS = c.dns(at+".dns", d.DNS)
	return out
}

// turnServer checks one relay.
func (c *checker) turnServer(at string, t api.TURNServer) relay.Server {
	c.dialAddress(at+".address", t.Address)
	out := relay.Server{Address: t.Address, Username: t.Username, Transport: t.Transport, ServerName: t.ServerName}
	switch t.Transport {
	case relay.TransportAuto, relay.TransportUDP, relay.TransportTCP, relay.TransportTLS:
	default:
		c.fail(at+".transport", "%q is not a transport (want auto, udp, tcp or tls)", t.Transport)
	}
	switch {
	case t.PasswordFile != "" && t.Username == "":
		c.fail(at+".username", "missing (the server wants the name that the password is for)")
	case t.PasswordFile != "":
		if data, ok := c.secret(at+".passwordFile", t.PasswordFile); ok {
			out.Password = relay.Secret(strings.TrimSpace(string(data)))
			if out.Password == "" {
				c.fail(at+".passwordFile", "%s is empty", c.path(at+".passwordFile", t.PasswordFile))
			}
		}
	case t.Username != "":
		c.fail(at+".passwordFile", "missing (the file that holds the password of %q)", t.Username)
	}
	if t.CAFile != "" {
		out.CAData = c.certificates(at+".caFile", t.CAFile)
	}
	return out
}

// portMapping checks which router to use.
func (c *checker) portMapping(at string, m api.PortMapping) PortMapping {
	out := PortMapping{Enabled: m.Mode == PortMappingAuto}
	if m.Mode != PortMappingAuto && m.Mode != PortMappingOff {
		c.fail(at+".mode", "%q is not a mode (want auto or off)", m.Mode)
	}
	if m.Router == "" {
		return out
	}
	a, err := netip.ParseAddr(m.Router)
	switch {
	case err != nil:
		c.fail(at+".router", "%q is not an IP address", m.Router)
	case a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast():
		c.fail(at+".router", "%q is not a router's address (want that of the router in front of this gateway, as 192.168.1.1)", m.Router)
	case !out.Enabled:
		c.warn(at+".router", "the router is not asked for a port, since the mode is off")
	default:
		out.Router = a.Unmap()
	}
	return out
}

// endpoints splits a peer's endpoints: addresses, and host:port names that are resolved while the
// gateway runs.
func (c *checker) endpoints(at string, stock bool, list []string) (addrs []netip.AddrPort, names []string) {
	for i, s := range list {
		field := fmt.Sprintf("%s.endpoints[%d]", at, i)
		a, err := ParseEndpoint(s)
		switch {
		case err == nil && peer.OverlayPrefix.Contains(a.Addr()):
			c.fail(field, "%q is an overlay address: it leads into the tunnel, not to the peer's gateway", s)
		case err == nil:
			addrs = append(addrs, a)
		case CheckDialAddress(s) != nil:
			c.fail(field, "%v", err)
		case stock:
			c.fail(field, "%q is a host name, and those of a stock peer are not resolved (want IP:port)", s)
		default:
			names = append(names, s)
		}
	}
	return addrs, names
}
