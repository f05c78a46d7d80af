package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of a Peer's conditions. The reason of each is the name of its PST code in one word,
// and the message has the code, its cause and its fix.
const (
	// Accepted: the gateway uses the spec. It is False if the gateway refuses the spec.
	Accepted = "Accepted"
	// Ready summarises the others: the spec is accepted, the tunnel is up, and the services that
	// the peer offers us answer. A service that it does not offer is not a fault.
	Ready = "Ready"
	// Stalled exists, and is True, only while the gateway refuses the spec: the Peer will not become
	// Ready until somebody changes something, so tools need not wait for that.
	Stalled = "Stalled"
	// TunnelReady: the gateways hear each other.
	TunnelReady = "TunnelReady"
	// AuthReachable and APIServerReachable: the peer's services answer us.
	AuthReachable      = "AuthReachable"
	APIServerReachable = "APIServerReachable"
	// IdentityIssued: the peer has issued us a valid identity for its API server.
	IdentityIssued = "IdentityIssued"
)

// StateRefused is the state of a Peer that the gateway cannot use as it is; Accepted says
// why. The other states are those of `postern status`.
const StateRefused = "refused"

// StateUnknown is the state of every Peer while no gateway is running.
const StateUnknown = "unknown"

// PeerStatus is what the gateway knows about the peer. Only the gateway writes it.
type PeerStatus struct {
	// ObservedGeneration is the generation of the spec that is in force.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// State is connected, unconfirmed, connecting, pending, failed, refused, or unknown when the
	// gateway has stopped.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	State string `json:"state,omitempty"`
	// Path is the path in use to the peer.
	//
	// +optional
	Path *PeerPath `json:"path,omitempty"`
	// RTT is the round-trip time of that path, rounded. It is updated when it has changed by
	// 20 % and by 1 ms, at most every two minutes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RTT string `json:"rtt,omitempty"`
	// Auth and APIServer are the verdicts on the peer's services: ok, warning, error, unknown,
	// or off if the peer does not offer them to us.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Auth string `json:"auth,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=32
	APIServer string `json:"apiServer,omitempty"`
	// Code is the PST code of the first thing to fix.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Code string `json:"code,omitempty"`
	// LastSeen is the time of the last handshake. There is one every two minutes while the gateways
	// hear each other. LastSeen is updated with the other fields, and at least every ten minutes.
	//
	// +optional
	LastSeen *metav1.Time `json:"lastSeen,omitempty"`
	// Address is the peer's address inside the tunnel.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address,omitempty"`
	// User is the peer's user at this cluster's API server. Bind roles to it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	User string `json:"user,omitempty"`
	// Identity is what the peer has issued to us.
	//
	// +optional
	Identity *PeerIdentity `json:"identity,omitempty"`
	// Conditions are Accepted, Ready, TunnelReady, AuthReachable, APIServerReachable and
	// IdentityIssued, and Stalled while the object is refused.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PeerPath is the path in use to a peer.
type PeerPath struct {
	// Kind is direct, relay or none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Kind string `json:"kind,omitempty"`
	// Remote is the address at which the peer is reached, ip:port.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Remote string `json:"remote,omitempty"`
}

// PeerIdentity is what a peer has issued to us for its API server.
type PeerIdentity struct {
	// User is this gateway's user at the peer's API server.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	User string `json:"user,omitempty"`
	// NotAfter is when the identity expires; it is renewed before that.
	//
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
}

// PeerList is a list of Peers.
//
// +kubebuilder:object:root=true
type PeerList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Peer `json:"items"`
}
