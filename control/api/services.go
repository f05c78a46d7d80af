package api

// Directions of a service of clusters.
const (
	ServiceExported = "exported"
	ServiceImported = "imported"
)

// States of a service of clusters towards a peer.
const (
	// ServiceInUse: exported and known to the peer, or imported with a listener here.
	ServiceInUse = "ok"
	// ServiceWaiting: the peer has not been notified yet, or has not announced it, or a listener
	// cannot be opened.
	ServiceWaiting = "waiting"
	// ServiceFailing: imported, and what came to a listener last could not be carried to the peer.
	ServiceFailing = "failing"
	// ServiceUngranted: exported, but granted to no peer.
	ServiceUngranted = "ungranted"
	// ServiceRefused: Code, Cause and Fix say why.
	ServiceRefused = "refused"
)

// ClusterService is a service of a cluster that is exported to a peer, or imported from it.
type ClusterService struct {
	// Service is NAMESPACE/NAME; empty if the peer's name for it is invalid.
	Service   string `json:"service,omitempty"`
	Direction string `json:"direction"`
	// Peer is the importing or exporting peer; empty if it concerns none in particular.
	Peer  string `json:"peer,omitempty"`
	State string `json:"state"`
	Type  string `json:"type,omitempty"` // ClusterSetIP or Headless
	// Ports are those of the service, such as 80 or 53/UDP.
	Ports []string `json:"ports,omitempty"`
	// Addresses (ip:port) are the listeners of an imported service.
	Addresses []string `json:"addresses,omitempty"`
	// Listeners are the same, with their ports.
	Listeners []ClusterListener `json:"listeners,omitempty"`
	// Connections is how many connections and flows of datagrams are open.
	Connections int `json:"connections,omitempty"`
	// ReadyBackends is how many backends of an exported service take connections now; nil for an
	// imported one.
	ReadyBackends *int `json:"readyBackends,omitempty"`
	// Used counts its use; nil if it is not counted separately.
	Used  *ServiceUse `json:"used,omitempty"`
	Code  string      `json:"code,omitempty"`
	Cause string      `json:"cause,omitempty"`
	// Steps are what to do, Fix the same as text.
	Steps Steps  `json:"steps,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// ClusterListener is a listener for a port of an imported service.
type ClusterListener struct {
	// Port is that of the service, such as 80, 53/UDP or, of one pod of a headless service, 5432@db-0.
	Port    string `json:"port"`
	Address string `json:"address"` // ip:port
}

// ServiceUse counts a service's use by one peer since it was granted or imported, or since the
// gateway started. Flows of datagrams count as connections.
type ServiceUse struct {
	Connections uint64 `json:"connections"` // carried connections
	RxBytes     uint64 `json:"rxBytes"`     // from the peer
	TxBytes     uint64 `json:"txBytes"`     // to it
	// Failures counts the connections that failed, by reason (see package forward). Reasons without
	// failures are missing.
	Failures map[string]uint64 `json:"failures,omitempty"`
}

// ClusterServices are the services of clusters that this gateway exports and imports.
type ClusterServices struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "ClusterServices"
	// Enabled reports whether the gateway exports and imports services.
	Enabled bool `json:"enabled"`
	// Services are sorted by name, exported ones first.
	Services []ClusterService `json:"services"`
}
