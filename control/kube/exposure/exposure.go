package exposure

import (
	"net"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/check"
)

// Names of own checks that show problems.
const (
	NameService   = "service"
	NameNodes     = "node-addresses"
	NameAPIServer = "apiServer-address"
	NameMoved     = "exposure-moved"
)

// SourceService is the source of candidates made from endpoints, as in the status document.
const SourceService = "service"

// Exposure is how the cluster lets others reach the gateway, auth and the API server.
type Exposure struct {
	// Type is that of the gateway's Service; empty if unknown.
	Type string
	// Endpoints lead to the gateway's UDP port, the best first.
	Endpoints []Endpoint
	// Auth is how auth is exposed to out-of-band peers; the zero value if it is not.
	Auth Auth
	// APIServer is the API server's address for others; its Address is empty if unknown.
	APIServer Endpoint
	// Problems are the problems found, each with its code.
	Problems []check.OwnProblem
}

// Endpoint is an address with its source.
type Endpoint struct {
	Address string // "host-or-ip:port"
	Source  string // SourceService
	From    string // "LoadBalancer of Service postern"
}

// Auth is the exposure of the auth service.
type Auth struct {
	// Exposure is LoadBalancer, NodePort, Ingress or ClusterIP, as in package predict.
	Exposure  string
	Endpoints []Endpoint
	// TLS is what an Ingress does with TLS: passthrough, reencrypted, terminated or none (plain
	// HTTP).
	TLS string
}

// TLSNone is an Ingress without TLS: tokens would cross the network in the clear.
const TLSNone = "none"

// addresses returns those of endpoints.
func addresses(list []Endpoint) []string {
	out := make([]string, 0, len(list))
	for _, e := range list {
		out = append(out, e.Address)
	}
	return out
}

// endpoints collects addresses without duplicates.
type endpoints []Endpoint

func (l *endpoints) add(host, port, from string) {
	e := Endpoint{Address: net.JoinHostPort(host, port), Source: SourceService, From: from}
	if host == "" || slices.ContainsFunc(*l, func(x Endpoint) bool { return x.Address == e.Address }) {
		return
	}
	*l = append(*l, e)
}

// private reports whether an address can only be dialled from its own network. A name is assumed
// to be public.
func private(host string) bool {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	a = a.Unmap()
	sharedSpace := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10) // RFC 6598
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || sharedSpace.Contains(a)
}

// hostOf returns the host of a host:port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
