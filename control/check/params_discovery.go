package check

// DiscoveryParams are the parameters of the codes about what is found in DNS, and about
// the port that a router maps.
type DiscoveryParams struct {
	// Domain is browsed for gateways; Record is the type and name of a record.
	Domain string `json:"domain,omitempty"`
	Record string `json:"record,omitempty"`
	// PeerName is a peer that the check of this gateway itself is about.
	PeerName string `json:"peerName,omitempty"`
	// Known and Found are fingerprints of public keys: the peer's, and the one that was found.
	Known string `json:"known,omitempty"`
	Found string `json:"found,omitempty"`
	// Router is who was asked for a port, Mapped the address that it says it maps.
	Router string `json:"router,omitempty"`
	Mapped string `json:"mapped,omitempty"`
}
