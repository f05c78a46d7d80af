package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/api"
	dnssd "github.com/postern-dev/postern/discovery/dns"
)

const (
	// maxDomains and maxDNSServers bound what a gateway keeps querying.
	maxDomains    = 16
	maxDNSServers = 4
	dnsPort       = 53
)

// DNS lists the domains to look for gateways in; without any, DNS discovery is off.
type DNS struct {
	Domains []string
	// Servers replace the system's; nil means the system's.
	Servers []netip.AddrPort
}

// dns checks the settings of DNS discovery.
func (c *checker) dns(at string, d api.DNS) DNS {
	var out DNS
	if len(d.Domains) > maxDomains {
		c.fail(at+".domains", "%d domains, and at most %d are browsed", len(d.Domains), maxDomains)
	}
	for i, name := range d.Domains {
		if err := dnssd.CheckDomain(name); err != nil {
			c.fail(fmt.Sprintf("%s.domains[%d]", at, i), "%v", err)
			continue
		}
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		if !slices.Contains(out.Domains, name) {
			out.Domains = append(out.Domains, name)
		}
	}
	if len(d.Servers) > maxDNSServers {
		c.fail(at+".servers", "%d servers, and at most %d are asked", len(d.Servers), maxDNSServers)
	}
	for i, s := range d.Servers {
		a, err := parseDNSServer(s)
		if err != nil {
			c.fail(fmt.Sprintf("%s.servers[%d]", at, i), "%v", err)
			continue
		}
		out.Servers = append(out.Servers, a)
	}
	if len(d.Servers) > 0 && len(d.Domains) == 0 {
		c.warn(at+".servers", "nobody is asked, since no domains are browsed (name them in %s.domains)", at)
	}
	return out
}

// parseDNSServer parses an IP address with an optional port, 53 by default.
func parseDNSServer(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		ip, ipErr := netip.ParseAddr(s)
		if ipErr != nil {
			return a, fmt.Errorf("%q is not an IP address, with or without a port", s)
		}
		a = netip.AddrPortFrom(ip, dnsPort)
	}
	if ip := a.Addr(); a.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return a, fmt.Errorf("%q cannot be a server's address", s)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}
