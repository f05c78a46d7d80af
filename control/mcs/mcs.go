// Package mcs models the Multi-Cluster Services API (KEP-1645) as data: what this cluster exports,
// what peers export, and what this cluster imports as a result. It does not use Kubernetes' types,
// so that gateways without a cluster can use it too.
//
//	ServiceExports ─▶ Export ─▶ catalogue, in-band ─▶ Import ─▶ ServiceImports, Services, EndpointSlices
//	 (control/kube/mcs)                                           (control/kube/mcs)
package mcs

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// Name is the name of a service. It means the same service in every cluster of the set (KEP-1645,
// namespace sameness).
type Name struct{ Namespace, Name string }

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Compare orders names.
func (n Name) Compare(m Name) int {
	return cmp.Or(cmp.Compare(n.Namespace, m.Namespace), cmp.Compare(n.Name, m.Name))
}

// Type is how a service is reached by its clusterset name.
type Type string

// The types of services.
const (
	ClusterSetIP Type = "ClusterSetIP" // by one address for all of its backends
	Headless     Type = "Headless"     // by the address of each backend
)

// Port is a port of a service.
type Port struct {
	Name        string // empty if it is the service's only port
	Protocol    api.Protocol
	Port        uint16
	AppProtocol string // may be empty
}

// Affinity is a service's session affinity.
type Affinity struct {
	ClientIP bool
	Timeout  time.Duration // 0 without ClientIP
}

// Spec is what the clusters that export a service have to agree on. If they do not, the oldest
// export counts (KEP-1645, constraints and conflict resolution); ports are united.
type Spec struct {
	Type     Type
	Ports    []Port // by name, then protocol and port
	Affinity Affinity
	// InternalTrafficPolicy and TrafficDistribution are the Service's, or empty. The gateway passes
	// them on and does not use them.
	InternalTrafficPolicy, TrafficDistribution string
	Labels                                     map[string]string // ServiceExport.spec.exportedLabels
	Annotations                                map[string]string // ServiceExport.spec.exportedAnnotations
}

// Export is an exported service of this cluster.
type Export struct {
	Name    Name
	UID     string    // of the Service: a new one of the same name gets other overlay ports
	Created time.Time // of the ServiceExport
	Spec    Spec
	// Proxied are the names of the ports whose connections begin with a PROXY protocol header
	// (version 2). They only concern this cluster and are not announced.
	Proxied []string
	// Backends are the existing endpoints, ready or not.
	Backends []Backend
	// Upstreams replaces Backends if there is no cluster: host:port by Port.Name, each assumed to
	// be ready.
	Upstreams map[string]string
}

// Backend is an endpoint of an exported service.
type Backend struct {
	Addr netip.Addr
	// Hostname distinguishes the backends of a Headless service: the pod's hostname, as in a
	// StatefulSet, or else the address with hyphens. It is empty for ClusterSetIP.
	Hostname string
	Ready    bool // others get no new connections
	// Ports are the target ports by Port.Name. The backend does not serve missing ones.
	Ports map[string]uint16
}

// Import is a service of peers as this cluster imports it.
type Import struct {
	Name Name
	// Spec is merged from all clusters that export the service, including this one.
	Spec Spec
	// Own reports whether this cluster exports the service too.
	Own bool
	// Clusters are the peers that export it to this one, by name. It is empty if none does and Own
	// is set.
	Clusters []Cluster
}

// Cluster is a peer that exports a service to this cluster.
type Cluster struct {
	ID string // the peer's name here
	// Endpoints has one element without a hostname for ClusterSetIP, and one for each ready backend
	// of Headless.
	Endpoints []Endpoint
	// Down: it does not answer, or has no ready backend, while another cluster could serve. Only of
	// ClusterSetIP.
	Down bool
}

// Endpoint is where this gateway listens for connections to a peer's service.
type Endpoint struct {
	Hostname string
	Ports    []EndpointPort
}

// EndpointPort is one listener of this gateway.
type EndpointPort struct {
	Port Port
	At   netip.AddrPort
}

// Conflict is a field in which an export of this cluster disagrees with an older one, or newer ones
// with it. The KEP sets the condition Conflict on every export of the service.
type Conflict struct {
	Name    Name
	Reason  string // of the API: PortConflict, TypeConflict, SessionAffinityConflict, …
	Message string
}

// State is the clusterset as this cluster should see it.
type State struct {
	Imports   []Import   // by name
	Conflicts []Conflict // by name, then reason
	// Awaited are the peers from which services are imported and which have not announced their
	// exports since the start. What was imported from them before stays as it is. By name.
	Awaited []string
	// Problems say why services are not exported or not imported, by name and peer.
	Problems []Problem
}

// Problem says why one service is not exported, or not imported.
type Problem struct {
	// Name of the service; zero if it is about all services of a peer, or if the name is invalid.
	Name Name
	// Peer announced it; empty for an export of this cluster.
	Peer   string
	Code   catalogue.Code
	Detail string // what is wrong with it; may be empty
	// Port is the affected port, as [PortName] writes it, and Address its listener's; empty if it
	// is about all ports.
	Port, Address string
}

// Params returns the parameters of the code's texts.
func (p Problem) Params() catalogue.Params {
	out := catalogue.Params{Peer: p.Peer, Service: p.Port, Address: p.Address, Detail: p.Detail, Limit: MaxServices}
	if p.Port == "" && p.Name != (Name{}) {
		out.Service = p.Name.String()
	}
	return out
}

// Services is the interface of the gateway to the controller in the cluster.
type Services interface {
	// SetExports replaces the exports of this cluster. They must not be changed afterwards.
	// Unchanged ones cost nothing. The State contains them on return.
	SetExports([]Export)
	// SetNamespaces replaces the namespaces that exist here: nothing is imported into others. The
	// State contains the imports on return.
	SetNamespaces([]string)
	// Reserve names the peers whose services objects of this cluster expect at ports of listeners here.
	// Another peer gets such a port only if no other is free: clients of the one would reach the other,
	// for as long as the objects are from before the start, or cannot be written. The map must not be
	// changed afterwards.
	Reserve(peers map[uint16]string)
	// State returns the current state, which must not be changed, and a channel that is closed when
	// there is a new one.
	State() (State, <-chan struct{})
}
