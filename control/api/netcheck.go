package api

import "time"

// NetCheck is what a gateway knows of the network around it (kind: NetCheck).
type NetCheck struct {
	Kind string `json:"kind"`
	// Mapping and Filtering are the NAT's behaviour in the words of RFC 4787; the mapping
	// is "none" where there is no NAT.
	Mapping         string   `json:"mapping"`
	Filtering       string   `json:"filtering"`
	PublicAddresses []string `json:"publicAddresses"`
	// STUNServers and TURNServers are those of the configuration, each with how it fares.
	STUNServers []STUNServerStatus `json:"stunServers"`
	TURNServers []TURNServerStatus `json:"turnServers"`
	PortMapping PortMappingStatus  `json:"portMapping"`
	// Proxy is what TCP connections to the outside take; nil without one.
	Proxy *ProxyStatus `json:"proxy,omitempty"`
	// Hints say what all this means for peering, and what to do.
	Hints []string `json:"hints"`
}

// STUNServerStatus is how one address of a STUN server answers.
type STUNServerStatus struct {
	// Name is the configured host:port, Address what it stands for.
	Name       string  `json:"name,omitempty"`
	Address    string  `json:"address"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	// Mapped is the address that it sees us at.
	Mapped string `json:"mapped,omitempty"`
	Error  string `json:"error,omitempty"`
}

// TURNServerStatus is how an allocation on a relay fares.
type TURNServerStatus struct {
	// Address is the configured host:port.
	Address string `json:"address"`
	// Transport is udp, tcp or tls: what the allocation was made over.
	Transport string `json:"transport,omitempty"`
	// Relayed is the address at which peers reach us there.
	Relayed    string  `json:"relayed,omitempty"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	Error      string  `json:"error,omitempty"`
}

// ProxyStatus is how an HTTP proxy fares.
type ProxyStatus struct {
	// Address is host:port of the proxy.
	Address string `json:"address"`
	// Targets are the hosts that were last connected to through it, the latest first.
	Targets []ProxyTarget `json:"targets"`
}

// ProxyTarget is what came of the last connection to a host through a proxy.
type ProxyTarget struct {
	// Address is host:port.
	Address string    `json:"address"`
	At      time.Time `json:"at"`
	// Error is empty when the proxy connected.
	Error string `json:"error,omitempty"`
}

// PortMappingStatus is whether a router maps a port for us.
type PortMappingStatus struct {
	// Mode is that of the configuration: auto or off.
	Mode string `json:"mode"`
	// State is off, waiting (for a router or a port), asking, mapped, useless (listed by the
	// router, but nobody outside gets through) or failed.
	State string `json:"state"`
	// Router is whom we ask, Protocol (PCP, NAT-PMP or UPnP) what made the mapping or is
	// being tried.
	Router   string `json:"router,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	// External is the address that the router maps to Internal, ours.
	External string `json:"external,omitempty"`
	Internal string `json:"internal,omitempty"`
	// LifetimeSeconds is what the router granted, ExpiresAt when that ends unless renewed.
	LifetimeSeconds float64    `json:"lifetimeSeconds,omitempty"`
	ExpiresAt       *time.Time `json:"expiresAt,omitempty"`
	// Verified says what shows that others get through: inbound (a STUN server did), stun
	// (STUN servers see us there), address (they see us at that IP address) or none, the
	// router's word alone. It is empty unless the state is mapped.
	Verified string `json:"verified,omitempty"`
	// Error says why there is no usable mapping, or why it could not be renewed.
	Error string `json:"error,omitempty"`
	// RetryAt is when a router is asked again that gave none.
	RetryAt *time.Time `json:"retryAt,omitempty"`
}
