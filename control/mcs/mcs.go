// Package mcs is what the services of clusters are to each other under the Multi-Cluster
// Services API (KEP-1645), as data: what this cluster exports, what peers say that they export,
// and what this cluster is to import of it all. It knows nothing of Kubernetes' types, so that
// gateways without a cluster have the same.
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

// Name is that of a service. It means the same service in every cluster of the set
// (KEP-1645, namespace sameness).
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

// Port is one of a service's.
type Port struct {
	Name        string // empty if the service has no other
	Protocol    api.Protocol
	Port        uint16
	AppProtocol string // empty if none is said
}

// Affinity is how connections of a client are kept together.
type Affinity struct {
	ClientIP bool
	Timeout  time.Duration // 0 without ClientIP
}

// Spec is what the clusters that export a service have to agree on. Where they do not, the
// oldest export counts (KEP-1645, constraints and conflict resolution); ports are united.
type Spec struct {
	Type     Type
	Ports    []Port // by name, then protocol and port
	Affinity Affinity
	// InternalTrafficPolicy and TrafficDistribution are the Service's, empty where it has none.
	// They are passed on and change nothing of what a gateway does.
	InternalTrafficPolicy, TrafficDistribution string
	Labels                                     map[string]string // ServiceExport.spec.exportedLabels
	Annotations                                map[string]string // ServiceExport.spec.exportedAnnotations
}

// Export is an exported service of this cluster.
type Export struct {
	Name    Name
	UID     string    // of the Service: another one of the same name gets other overlay ports
	Created time.Time // the ServiceExport
	Spec    Spec
	// Proxied are the names of the ports whose connections begin with who connects (PROXY protocol,
	// version 2). They are this cluster's affair, and peers are not told.
	Proxied []string
	// Backends are the endpoints that exist, ready ones and others.
	Backends []Backend
}

// Backend is where connections to an exported service may be carried to.
type Backend struct {
	Addr netip.Addr
	// Hostname tells the backends of a Headless service apart: that of the pod, as those of a
	// StatefulSet have, or else the address with hyphens. It is empty for ClusterSetIP.
	Hostname string
	Ready    bool // ready and not terminating: nothing new is carried to others
	// Ports are the target ports by Port.Name. A missing one is not served by this backend.
	Ports map[string]uint16
}

// Import is a service of peers as this cluster is to have it.
type Import struct {
	Name Name
	// Spec is the one of all that export the service, this cluster among them if it does.
	Spec Spec
	// Own says that this cluster exports the service as well.
	Own bool
	// Clusters are the peers that export it to here, by name. It is empty if none does and Own is set.
	Clusters []Cluster
}

// Cluster is one peer that exports a service to here.
type Cluster struct {
	ID string // the peer's name here
	// Endpoints has one element without a hostname for ClusterSetIP, and one for each ready
	// backend of Headless.
	Endpoints []Endpoint
}

// Endpoint is where this gateway listens for connections that it carries to a peer's service.
type Endpoint struct {
	Hostname string
	Ports    []EndpointPort
}

// EndpointPort is one listener of this gateway.
type EndpointPort struct {
	Port Port
	At   netip.AddrPort
}

// Conflict is a field in which an export of this cluster disagrees with an older one, or with
// which others disagree: the KEP sets the condition Conflict on every export of the service.
type Conflict struct {
	Name    Name
	Reason  string // of the API: PortConflict, TypeConflict, SessionAffinityConflict, …
	Message string
}

// State is what this cluster is to have of the clusterset.
type State struct {
	Imports   []Import   // by name
	Conflicts []Conflict // by name, then reason
	// Unheard are the peers from which services are to be imported and which have not said since
	// the start what they export: what is there of them is to stay as it is. By name.
	Unheard []string
	// Problems are why services are not exported or not imported, by name and peer.
	Problems []Problem
}

// Problem is why one service is not exported, or not imported.
type Problem struct {
	// Name of the service; zero if it is about all of a peer's, or has no name that can be.
	Name Name
	// Peer is who told it; empty of an export of this cluster.
	Peer   string
	Code   catalogue.Code
	Detail string // what is wrong with it; may be empty
	// Port is which of its ports it is about, as [PortName] has it, and Address where that is to be
	// listened for; empty if it is about all.
	Port, Address string
}

// Params are what the code's texts are made of.
func (p Problem) Params() catalogue.Params {
	out := catalogue.Params{Peer: p.Peer, Service: p.Port, Address: p.Address, Detail: p.Detail, Limit: MaxServices}
	if p.Port == "" && p.Name != (Name{}) {
		out.Service = p.Name.String()
	}
	return out
}

// Services is the gateway's side, for the cluster's.
type Services interface {
	// SetExports replaces the exports of this cluster, which are not to be changed any more. What did
	// not change costs nothing. The State has them on return.
	SetExports([]Export)
	// SetNamespaces replaces the namespaces that exist here: nothing is imported into others.
	// The State has what is imported on return.
	SetNamespaces([]string)
	// State is the present one, which is not to be changed, and a channel that is closed when there is
	// another.
	State() (State, <-chan struct{})
}
