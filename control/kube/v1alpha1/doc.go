// Package v1alpha1 has the objects by which a cluster is told what its gateway's peers are:
// Peer and Ticket, of the group postern.dev. They live in the gateway's own namespace.
//
// The custom resource definitions in cmd/postern/deploy/chart/definitions and the copying methods
// in zz_generated.deepcopy.go are made of these types by `make generate`. What a value must
// be is said here, as markers: a pattern or a rule in CEL with the message that whoever
// applies a wrong one reads. Rules that need to know the gateway (which named services it
// has, what its own key is, what other peers there are) are package peers' to judge, and
// end up in an object's conditions.
//
// # Rules of the schema
//
// Everything is bounded, lists and texts alike: the API server works out beforehand what
// rules may cost, and refuses a definition of which it cannot. No secret is ever in an
// object, neither in its spec nor in its status: there are references to Secrets of the same
// namespace instead.
//
// +kubebuilder:object:generate=true
// +groupName=postern.dev
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of the API.
const (
	Group   = "postern.dev"
	Version = "v1alpha1"
	// PeerKind and TicketKind are what objects call themselves, and PeerResource and
	// TicketResource what they are asked for by.
	PeerKind       = "Peer"
	TicketKind     = "Ticket"
	PeerResource   = "peers"
	TicketResource = "tickets"
)

// GroupVersion is that of the package's types.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }
