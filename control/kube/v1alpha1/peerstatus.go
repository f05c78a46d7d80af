package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of a Peer's conditions. The reason of each is the name of its PST code in one word,
// and the message has the code, what causes it and what fixes it.
const (
	// Accepted: the gateway has taken the spec. What it refuses is False.
	Accepted = "Accepted"
	// Ready sums up the others: the spec is accepted, the tunnel is up, and what the peer
	// offers us answers. What it does not offer is no fault.
	Ready = "Ready"
	// Stalled is there, and True, only while the gateway refuses the spec: nothing will come of it
	// until somebody changes something. Tools that wait for Ready need not wait for it.
	Stalled = "Stalled"
	// TunnelReady: the gateways hear each other.
	TunnelReady = "TunnelReady"
	// AuthReachable and APIServerReachable: the peer's services answer us.
	AuthReachable      = "AuthReachable"
	APIServerReachable = "APIServerReachable"
	// IdentityIssued: the peer has issued us an identity for its API server, which is valid.
	IdentityIssued = "IdentityIssued"
)

// StateRefused is the state of a Peer that the gateway cannot take as it is; Accepted says
// why. The other states are those of `postern status`.
const StateRefused = "refused"

// StateUnknown is the state of every Peer while no gateway runs that looks at it.
const StateUnknown = "unknown"

// PeerStatus is what the gateway knows of the peer. It is written by the gateway alone.
type PeerStatus struct {
	// ObservedGeneration is the generation of the spec that is in force.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// State is connected, unconfirmed, connecting, pending, failed, refused, or unknown when the
	// gateway has ended.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	State string `json:"state,omitempty"`
	// Path is the way in use to the peer.
	//
	// +optional
	Path *PeerPath `json:"path,omitempty"`
	// RTT is the round trip time of that way, rounded. It is brought up to date when it
	// has changed by 20 % and by 1 ms, every two minutes at most.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RTT string `json:"rtt,omitempty"`
	// Auth and APIServer are the verdicts on the peer's services: ok, warning, error, unknown,
	// or off where the peer does not offer them to us.
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
	// LastSeen is when the gateways shook hands last, which they do every two minutes while they
	// hear each other. It is brought up to date with the rest, and every ten minutes at least.
	//
	// +optional
	LastSeen *metav1.Time `json:"lastSeen,omitempty"`
	// Address of the peer in the tunnel.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address,omitempty"`
	// User is who the peer is at this cluster's API server, to which roles are bound.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	User string `json:"user,omitempty"`
	// Identity is what the peer has issued to us.
	//
	// +optional
	Identity *PeerIdentity `json:"identity,omitempty"`
	// Conditions are Accepted, Ready, TunnelReady, AuthReachable, APIServerReachable and
	// IdentityIssued; Stalled while the object is refused.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PeerPath is the way in use to a peer.
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
	// User is who we are at the peer's API server.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	User string `json:"user,omitempty"`
	// NotAfter is when it ends; it is renewed before.
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
