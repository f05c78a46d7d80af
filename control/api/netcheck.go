package api

import "time"

// NetCheck is what a gateway knows of the network around it (kind: NetCheck).
type NetCheck struct {
	Kind string `json:"kind"`
	// Mapping and Filtering are the NAT's behaviour in the terms of RFC 4787. The mapping is "none"
	// if there is no NAT.
	Mapping         string   `json:"mapping"`
	Filtering       string   `json:"filtering"`
	PublicAddresses []string `json:"publicAddresses"`
	// STUNServers and TURNServers are the configured ones, each with its state.
	STUNServers []STUNServerStatus `json:"stunServers"`
	TURNServers []TURNServerStatus `json:"turnServers"`
	PortMapping PortMappingStatus  `json:"portMapping"`
	// Proxy is the proxy for TCP connections to the outside; nil without one.
	Proxy *ProxyStatus `json:"proxy,omitempty"`
	// Hints say what all this means for peering, and what to do.
	Hints []string `json:"hints"`
}

// STUNServerStatus is the state of one address of a STUN server.
type STUNServerStatus struct {
	// Name is the configured host:port, Address the one it resolves to.
	Name       string  `json:"name,omitempty"`
	Address    string  `json:"address"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	// Mapped is the address at which it sees this gateway.
	Mapped string `json:"mapped,omitempty"`
	Error  string `json:"error,omitempty"`
}

// TURNServerStatus is the state of an allocation on a relay.
type TURNServerStatus struct {
	// Address is the configured host:port.
	Address string `json:"address"`
	// Transport is udp, tcp or tls: the transport of the allocation.
	Transport string `json:"transport,omitempty"`
	// Relayed is the address at which peers reach this gateway there.
	Relayed    string  `json:"relayed,omitempty"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	Error      string  `json:"error,omitempty"`
}

// ProxyStatus is the state of an HTTP proxy.
type ProxyStatus struct {
	// Address is host:port of the proxy.
	Address string `json:"address"`
	// Targets are the hosts that were last connected to through it, the latest first.
	Targets []ProxyTarget `json:"targets"`
}

// ProxyTarget is the result of the last connection to a host through a proxy.
type ProxyTarget struct {
	// Address is host:port.
	Address string    `json:"address"`
	At      time.Time `json:"at"`
	// Error is empty when the proxy connected.
	Error string `json:"error,omitempty"`
}

// PortMappingStatus is the state of a port mapping at a router.
type PortMappingStatus struct {
	// Mode is the configured one: auto or off.
	Mode string `json:"mode"`
	// State is off, waiting (for a router or a port), asking, mapped, useless (listed by the
	// router, but nobody outside gets through) or failed.
	State string `json:"state"`
	// Router is the router's address. Protocol (PCP, NAT-PMP or UPnP) made the mapping or is being
	// tried.
	Router   string `json:"router,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	// External is the address that the router maps to Internal, this gateway's own.
	External string `json:"external,omitempty"`
	Internal string `json:"internal,omitempty"`
	// LifetimeSeconds is what the router granted. It ends at ExpiresAt unless it is renewed.
	LifetimeSeconds float64    `json:"lifetimeSeconds,omitempty"`
	ExpiresAt       *time.Time `json:"expiresAt,omitempty"`
	// Verified says what shows that others get through: inbound (a STUN server did), stun (STUN
	// servers see this gateway there), address (they see it at that IP address) or none (only the
	// router says so). It is empty unless the state is mapped.
	Verified string `json:"verified,omitempty"`
	// Error says why there is no usable mapping, or why it could not be renewed.
	Error string `json:"error,omitempty"`
	// RetryAt is when a router that granted no mapping is tried again.
	RetryAt *time.Time `json:"retryAt,omitempty"`
}
