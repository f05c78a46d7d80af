package predict

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/control/api"
)

// Ways to expose a service.
const (
	LoadBalancer   = "LoadBalancer"
	NodePort       = "NodePort"
	Ingress        = "Ingress"
	ClusterIP      = "ClusterIP"
	PortForwarding = "port-forwarding"

	// Only for API servers.
	Provider         = "provider" // the cloud's managed endpoint
	Public           = "public"
	Private          = "private"
	APIServerIngress = "ingress"
)

// What an Ingress does with TLS.
const (
	Passthrough = "passthrough"
	Reencrypted = "reencrypted"
	Terminated  = "terminated"
)

// Exposure is how one cluster can be reached.
type Exposure struct {
	Name string `json:"name" yaml:"name"`
	// LAN names the cluster's broadcast domain; two clusters with the same name are on one LAN.
	LAN string `json:"lan,omitempty" yaml:"lan"`
	// Relay: the gateway has a TURN server.
	Relay     bool    `json:"relay,omitempty" yaml:"relay"`
	Auth      Service `json:"auth" yaml:"auth"`
	APIServer Service `json:"apiServer" yaml:"apiServer"`
	Gateway   Gateway `json:"gateway" yaml:"gateway"`
}

// Service is how auth or the API server is exposed. An empty Exposure is unknown.
type Service struct {
	Exposure string `json:"exposure,omitempty" yaml:"exposure"`
	// Address (host:port) is the address that peers dial.
	Address string `json:"address,omitempty" yaml:"address"`
	// TLS is what an Ingress does with TLS.
	TLS string `json:"tls,omitempty" yaml:"tls"`
}

// Gateway is how the gateway's UDP port is exposed.
type Gateway struct {
	Exposure string `json:"exposure,omitempty" yaml:"exposure"`
	// Addresses (host:port) are the addresses that peers dial.
	Addresses []string `json:"addresses,omitempty" yaml:"addresses"`
	NAT       NAT      `json:"nat,omitzero" yaml:"nat"`
}

// NAT is the behaviour of a gateway's NAT in the terms of RFC 4787; empty means unknown.
type NAT struct {
	Mapping   string `json:"mapping,omitempty" yaml:"mapping"`
	Filtering string `json:"filtering,omitempty" yaml:"filtering"`
	// AnswersStrays: an unsolicited packet from outside changes the mapping (a Linux router
	// that does not drop it).
	AnswersStrays bool `json:"answersStrays,omitempty" yaml:"answersStrays"`
}

// Check returns the first error in an exposure, with the field.
func (e Exposure) Check() error {
	if err := api.CheckName(e.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	mapping := []string{"", "none", "endpoint-independent", "address-dependent", "address-and-port-dependent", "endpoint-dependent", "unknown"}
	tls := []string{"", Passthrough, Reencrypted, Terminated}
	for _, w := range []struct {
		field, got string
		want       []string
	}{
		{"auth.exposure", e.Auth.Exposure, []string{"", LoadBalancer, NodePort, Ingress, ClusterIP, PortForwarding}},
		{"auth.tls", e.Auth.TLS, tls},
		{"apiServer.exposure", e.APIServer.Exposure, []string{"", Provider, Public, Private, APIServerIngress, PortForwarding}},
		{"apiServer.tls", e.APIServer.TLS, tls},
		{"gateway.exposure", e.Gateway.Exposure, []string{"", LoadBalancer, NodePort, Ingress, ClusterIP, PortForwarding}},
		{"gateway.nat.mapping", e.Gateway.NAT.Mapping, mapping},
		{"gateway.nat.filtering", e.Gateway.NAT.Filtering, mapping},
	} {
		if !slices.Contains(w.want, w.got) {
			return fmt.Errorf("%s: %.40q is none of %s", w.field, w.got, strings.Join(w.want[1:], ", "))
		}
	}
	for field, list := range map[string][]string{
		"auth.address": {e.Auth.Address}, "apiServer.address": {e.APIServer.Address}, "gateway.addresses": e.Gateway.Addresses,
	} {
		for _, a := range list {
			if a != "" && !isAddress(a) {
				return fmt.Errorf("%s: %.60q is no address or host name, with or without a port", field, a)
			}
		}
	}
	return nil
}

// scope says from where an address can be dialled.
type scope int

const (
	absent scope = iota // there is no address
	nearby              // only on the same LAN
	anywhere
)

// scopeOf returns the scope of an address. A host name is assumed to be public.
func scopeOf(address string) scope {
	if address == "" {
		return absent
	}
	host := hostOf(address)
	a, err := netip.ParseAddr(host)
	if err != nil {
		return anywhere
	}
	a = a.Unmap()
	cgnat := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10) // RFC 6598
	if a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.Is4() && cgnat.Contains(a) {
		return nearby
	}
	return anywhere
}

// best returns the address with the widest scope.
func best(addresses []string) (address string, s scope) {
	for _, a := range addresses {
		if x := scopeOf(a); x > s {
			address, s = a, x
		}
	}
	return address, s
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// isAddress reports whether s can be shown and dialled: an IP address or a host name.
func isAddress(s string) bool {
	host := hostOf(s)
	if _, port, err := net.SplitHostPort(s); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Zone() == ""
	}
	plain := func(r rune) bool {
		return r == '.' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	return host != "" && len(host) <= 253 && !strings.ContainsFunc(host, func(r rune) bool { return !plain(r) })
}
