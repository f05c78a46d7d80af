package config

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/mcs"
)

const (
	// minIdentityTTL leaves time for renewal, which starts well before the end.
	minIdentityTTL = time.Minute
	// minTokenTTL is the minimum of the token and certificate APIs.
	minTokenTTL = 10 * time.Minute
	// maxNamespace is the maximum length of a namespace's name: a DNS label (RFC 1123).
	maxNamespace = 63
)

func (c *checker) services(s *api.Services) Services {
	const at = "spec.services"
	var out Services
	if s.APIServer != nil {
		out.APIServer = c.apiServer(at+".apiServer", s.APIServer)
	}
	if s.Auth != nil {
		c.auth(at+".auth", s.Auth, &out)
	}
	out.Named = c.namedServices(at+".named", s.Named)
	return out
}

func (c *checker) apiServer(at string, s *api.APIServerService) *APIServer {
	c.dialAddress(at+".address", s.Address)
	out := &APIServer{Address: s.Address, ServerName: s.ServerName}
	if s.ServerName != "" && !isServerName(s.ServerName) {
		c.fail(at+".serverName", "%q is neither a host name nor an IP address", s.ServerName)
	}
	if s.CAFile != "" {
		out.CAData = c.certificates(at+".caFile", s.CAFile)
		if n := len(out.CAData); n > api.MaxCAData {
			c.fail(at+".caFile", "%s has %d bytes, and peers take at most %d (keep the authorities that signed the API server's certificate)", c.path(at+".caFile", s.CAFile), n, api.MaxCAData)
		}
	}
	return out
}

// isServerName reports whether a certificate can have the name: a host name or an IP address.
func isServerName(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || isHostName(s)
}

func (c *checker) auth(at string, s *api.AuthService, out *Services) {
	if s.OutOfBand != nil {
		out.OutOfBand = c.outOfBand(at+".outOfBand", s.OutOfBand)
	}
	if s.Issuer == nil {
		return
	}
	at += ".issuer"
	var chosen []string
	if s.Issuer.LocalCA != nil {
		chosen = append(chosen, "localCA")
	}
	if s.Issuer.ServiceAccount != nil {
		chosen = append(chosen, "serviceAccount")
	}
	if s.Issuer.CSR != nil {
		chosen = append(chosen, "csr")
	}
	switch {
	case len(chosen) == 0:
		c.fail(at, "names no issuer (want serviceAccount, csr or localCA, or leave issuer out to issue no identities)")
	case len(chosen) > 1:
		c.fail(at, "names several issuers: %s (keep one)", strings.Join(chosen, ", "))
	case s.Issuer.ServiceAccount != nil:
		out.ServiceAccount = c.serviceAccount(at+".serviceAccount", s.Issuer.ServiceAccount)
	case s.Issuer.LocalCA != nil:
		out.LocalCA = c.localCA(at+".localCA", s.Issuer.LocalCA)
	default:
		out.CSR = &CSR{TTL: c.clusterTTL(at+".csr.ttl", s.Issuer.CSR.TTL)}
	}
}

// fillIssuer sets what is unset in an issuer.
func (c *checker) fillIssuer(at string, i *api.Issuer) {
	if i.LocalCA != nil && i.LocalCA.TTL == 0 && !c.given(at+".localCA.ttl") {
		i.LocalCA.TTL = api.Duration(DefaultIdentityTTL)
	}
	if a := i.ServiceAccount; a != nil {
		if a.TTL == 0 && !c.given(at+".serviceAccount.ttl") {
			a.TTL = api.Duration(DefaultTokenTTL)
		}
		if a.Namespace == "" {
			a.Namespace = DefaultAccountNamespace
		}
	}
	if r := i.CSR; r != nil && r.TTL == 0 && !c.given(at+".csr.ttl") {
		r.TTL = api.Duration(DefaultTokenTTL)
	}
}

func (c *checker) serviceAccount(at string, s *api.ServiceAccountIssuer) *ServiceAccount {
	if !isNamespace(s.Namespace) {
		c.fail(at+".namespace", "%q is not a valid namespace name (want at most %d lower-case letters, digits and hyphens)", s.Namespace, maxNamespace)
	}
	for _, system := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if s.Namespace == system {
			c.fail(at+".namespace", "%s has accounts of others, and the gateway could make tokens for them all (make a namespace only for this)", system)
		}
	}
	return &ServiceAccount{Namespace: s.Namespace, TTL: c.clusterTTL(at+".ttl", s.TTL)}
}

// clusterTTL is the lifetime requested of a cluster.
func (c *checker) clusterTTL(at string, d api.Duration) time.Duration {
	switch ttl := time.Duration(d); {
	case ttl > DefaultIdentityTTL:
		c.fail(at, "%s is longer than %s (identities are renewed, so keep them short)", ttl, DefaultIdentityTTL)
	case ttl < minTokenTTL:
		c.fail(at, "%s is shorter than %s, the shortest that Kubernetes grants", ttl, minTokenTTL)
	}
	return time.Duration(d)
}

// isNamespace reports whether the text is a DNS label (RFC 1123 §2.1), in lower case.
func isNamespace(s string) bool {
	return s != "" && len(s) <= maxNamespace && strings.Trim(s, "-") == s &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func (c *checker) localCA(at string, s *api.LocalCA) *LocalCA {
	c.certificateAuthority(at, s.CertFile, s.KeyFile)
	switch ttl := time.Duration(s.TTL); {
	case ttl > DefaultIdentityTTL:
		c.fail(at+".ttl", "%s is longer than %s (identities are renewed, so keep them short)", ttl, DefaultIdentityTTL)
	case ttl < minIdentityTTL:
		c.fail(at+".ttl", "%s is shorter than %s", ttl, minIdentityTTL)
	}
	return &LocalCA{
		CertFile: c.path(at+".certFile", s.CertFile),
		KeyFile:  c.path(at+".keyFile", s.KeyFile),
		TTL:      time.Duration(s.TTL),
	}
}

func (c *checker) namedServices(at string, services []api.NamedService) []NamedService {
	c.named = map[string]bool{}
	taken := []NamedService{{Name: api.ServiceAuth, Ports: api.PortsOf(api.PortAuth)}, {Name: api.ServiceAPIServer, Ports: api.PortsOf(api.PortAPIServer)}}
	fixed := len(taken)
	exported := map[mcs.Name]map[string]string{} // which service has a port of that name
	for i, s := range services {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch err := api.CheckName(s.Name); {
		case err != nil:
			c.fail(at+".name", "%v", err)
		case reservedService(s.Name):
			c.fail(at+".name", "%q is a service of every gateway (choose another name)", s.Name)
		case c.named[s.Name]:
			c.fail(at+".name", "%q is the name of two services (rename one)", s.Name)
		default:
			c.named[s.Name] = true
		}
		n := NamedService{Name: s.Name, Ports: c.ports(at, s), Address: s.Address, Export: c.export(at+".export", s.Export), ProxyProtocol: s.ProxyProtocol}
		switch {
		case s.ProxyProtocol != "" && s.ProxyProtocol != api.ProxyV2:
			c.fail(at+".proxyProtocol", "%q is no version of the PROXY protocol that is spoken (want v2)", s.ProxyProtocol)
		case s.ProxyProtocol != "" && s.Protocol == api.UDP:
			c.fail(at+".proxyProtocol", "is for TCP, and this service is of UDP (leave it out)")
		}
		if i := slices.IndexFunc(taken, func(t NamedService) bool { return t.Ports.Overlaps(n.Ports) }); i >= 0 {
			c.fail(portsField(at, s), "%s is the port of %s inside the tunnel (choose another)", n.Ports, taken[i].Name)
		}
		if c.dialAddress(at+".address", s.Address); n.Ports.Len() > 1 {
			c.lastPort(at+".address", s.Address, n.Ports)
		}
		if n.Export != (mcs.Name{}) {
			if exported[n.Export] == nil {
				exported[n.Export] = map[string]string{}
			}
			c.exportedPorts(at+".export", n, exported[n.Export])
		}
		taken = append(taken, n)
	}
	return taken[fixed:]
}

// exportedPorts adds the ports of a named service to those of its exported name.
func (c *checker) exportedPorts(field string, n NamedService, ports map[string]string) {
	if sum := len(ports) + n.Ports.Len(); sum > mcs.MaxPorts {
		c.fail(field, "%s has %d ports with this, and a service of clusters has at most %d (export fewer, or as several services)", n.Export, sum, mcs.MaxPorts)
		return
	}
	for nth := range n.Ports.Len() {
		name := n.PortName(nth)
		if other, taken := ports[name]; taken {
			c.fail(field, "a port of %s is called %s by %s already (rename this service)", n.Export, name, other)
			return
		}
		ports[name] = n.Name
	}
}

// export returns the exported name of a named service.
func (c *checker) export(field, s string) mcs.Name {
	if s == "" {
		return mcs.Name{}
	}
	n, err := mcs.ParseName(s)
	switch {
	case err != nil:
		c.fail(field, "%v", err)
	case c.doc.Spec.Kubernetes != nil:
		c.fail(field, "a gateway in a cluster exports what has a ServiceExport there (make a Service and a ServiceExport, and remove export)")
	}
	return n
}

// ports returns a named service's ports inside the tunnel; none after a problem.
func (c *checker) ports(at string, s api.NamedService) api.Ports {
	none := api.Ports{First: 1}
	text := strconv.Itoa(int(s.Port))
	switch {
	case s.Ports != "" && s.Port != 0:
		c.fail(at+".ports", "port is given as well (keep one)")
		return none
	case s.Ports != "":
		text = s.Ports
	case s.Port == 0 && !c.given(at+".port"):
		c.fail(at+".port", "missing (want the port inside the tunnel, 1 to 65535, or ports: FIRST-LAST)")
		return none
	case s.Port == 0:
		c.fail(at+".port", "0 is no port to offer a service at (want 1 to 65535)")
		return none
	}
	p, err := api.ParsePorts(text)
	switch {
	case err != nil:
		c.fail(at+".ports", "%v", err)
		return none
	case p.First == 0:
		c.fail(at+".ports", "0 is no port to offer a service at (want 1 to 65535)")
		return none
	case strings.Contains(text, "/"):
		c.fail(at+".ports", "%q has a protocol (put it into protocol)", text)
		return none
	}
	switch s.Protocol {
	case "", api.TCP:
	case api.UDP:
		p.Protocol = api.UDP
	default:
		c.fail(at+".protocol", "%q is no protocol of a service (want TCP or UDP)", s.Protocol)
	}
	return p
}

// portsField is the field of a service's ports.
func portsField(at string, s api.NamedService) string {
	if s.Ports != "" {
		return at + ".ports"
	}
	return at + ".port"
}

// lastPort checks that the ports following an address are valid.
func (c *checker) lastPort(field, address string, p api.Ports) {
	if _, first, err := splitHostPort(address); err == nil && int(first)+p.Len()-1 > math.MaxUint16 {
		c.fail(field, "%d ports from %d are more than there are (give the first of them)", p.Len(), first)
	}
}

// reservedService reports whether a named service must not have the name.
func reservedService(name string) bool {
	return name == api.ServiceAuth || name == api.ServiceAPIServer || name == api.ServiceGateway ||
		name == strings.ToLower(api.ServiceAPIServer)
}
