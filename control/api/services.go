package api

// Directions of a service of clusters.
const (
	ServiceExported = "exported"
	ServiceImported = "imported"
)

// States of a service of clusters towards a peer.
const (
	// ServiceInUse: exported, the peer knows of it; imported, it is listened for here.
	ServiceInUse = "ok"
	// ServiceWaiting: the peer has not been told yet, or has not told, or a listener cannot be opened.
	ServiceWaiting = "waiting"
	// ServiceUngranted: it is exported, and granted to no peer.
	ServiceUngranted = "ungranted"
	// ServiceRefused: Code, Cause and Fix say why.
	ServiceRefused = "refused"
)

// ClusterService is a service of a cluster that is exported to a peer, or imported from it.
type ClusterService struct {
	// Service is NAMESPACE/NAME; empty where a peer gave it none that can be.
	Service   string `json:"service,omitempty"`
	Direction string `json:"direction"`
	// Peer is to whom, or from whom; empty if it is nobody's in particular.
	Peer  string `json:"peer,omitempty"`
	State string `json:"state"`
	Type  string `json:"type,omitempty"` // ClusterSetIP or Headless
	// Ports are those of the service, such as 80 or 53/UDP.
	Ports []string `json:"ports,omitempty"`
	// Addresses (ip:port) are where an imported one is listened for.
	Addresses []string `json:"addresses,omitempty"`
	// Connections and flows of datagrams that are open.
	Connections int `json:"connections,omitempty"`
	// ReadyBackends of an exported one take connections now; nil of an imported one.
	ReadyBackends *int `json:"readyBackends,omitempty"`
	// Used is what became of it; nil of one that is not counted by itself.
	Used  *ServiceUse `json:"used,omitempty"`
	Code  string      `json:"code,omitempty"`
	Cause string      `json:"cause,omitempty"`
	// Steps are what to do, Fix the same in words.
	Steps Steps  `json:"steps,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// ServiceUse is what became of a service towards one peer since it is counted: since it was granted or
// imported, and not before the gateway was started. Flows of datagrams count as connections.
type ServiceUse struct {
	Connections uint64 `json:"connections"` // that were carried
	RxBytes     uint64 `json:"rxBytes"`     // from the peer
	TxBytes     uint64 `json:"txBytes"`     // to it
	// Failures are the connections that were not carried, by reason (see package forward); a reason for
	// which none failed is not there.
	Failures map[string]uint64 `json:"failures,omitempty"`
}

// ClusterServices are the services of clusters that this gateway exports and imports.
type ClusterServices struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "ClusterServices"
	// Enabled: the gateway takes part.
	Enabled bool `json:"enabled"`
	// Services are in the order of their names, exported ones first.
	Services []ClusterService `json:"services"`
}
