package api

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

// PortMappingStatus is whether a router maps a port for us. This version asks none.
type PortMappingStatus struct {
	Mode  string `json:"mode"`
	State string `json:"state"`
}
