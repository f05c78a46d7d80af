// Package v1alpha1 defines the objects that describe the peers of a cluster's gateway:
// Peer and Ticket, of the group postern.dev. They live in the gateway's own namespace.
//
// `make generate` makes the custom resource definitions in cmd/postern/deploy/chart/definitions
// and the copying methods in zz_generated.deepcopy.go from these types. Markers say which
// values are valid: a pattern, or a CEL rule with a message for anyone who applies an invalid
// value. Package peers checks the rules that depend on the gateway (its named services, its
// own key, its other peers), and reports the result in an object's conditions.
//
// # Rules of the schema
//
// Every list and text is bounded: the API server estimates the cost of a rule in advance, and
// refuses a definition if it cannot. No object contains a secret, neither in its spec nor in
// its status: it refers to Secrets in the same namespace instead.
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
	// PeerKind and TicketKind are the kinds of the objects; PeerResource and TicketResource
	// are their resource names.
	PeerKind       = "Peer"
	TicketKind     = "Ticket"
	PeerResource   = "peers"
	TicketResource = "tickets"
)

// GroupVersion is the group and version of the package's types.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }
