package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelOrigin marks the object of a peer that joined by ticket or was added by command, and
// says how: invited, joined or added. The gateway sets it when it makes the object. What was
// agreed with such a peer is in the gateway's own state; the object says what it may do.
const LabelOrigin = "postern.dev/origin"

// Modes of a peering.
const (
	ModeInBand    = "InBand"
	ModeOutOfBand = "OutOfBand"
)

// Peer is another cluster's gateway: who it is, where it can be found, and what it may
// reach here. Two clusters peer when each has a Peer with the other's key.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=pspeer,categories=postern
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.status.path.kind`
// +kubebuilder:printcolumn:name="RTT",type=string,JSONPath=`.status.rtt`
// +kubebuilder:printcolumn:name="Auth",type=string,JSONPath=`.status.auth`
// +kubebuilder:printcolumn:name="API",type=string,JSONPath=`.status.apiServer`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Remote",type=string,priority=1,JSONPath=`.status.path.remote`
// +kubebuilder:printcolumn:name="Code",type=string,priority=1,JSONPath=`.status.code`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Last seen",type=date,priority=1,JSONPath=`.status.lastSeen`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="metadata.name is the peer's name, a DNS label of at most 40 characters: choose a shorter name of lower-case letters, digits and inner hyphens"
type Peer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PeerSpec `json:"spec"`
	// Status is what the gateway knows about the peer. Only the gateway writes it; until it does,
	// the conditions are Unknown.
	//
	// +optional
	// +kubebuilder:default={conditions:{{type:"Accepted",status:"Unknown",reason:"Pending",message:"no gateway has looked at it yet",lastTransitionTime:"1970-01-01T00:00:00Z"},{type:"Ready",status:"Unknown",reason:"Pending",message:"no gateway has looked at it yet",lastTransitionTime:"1970-01-01T00:00:00Z"}}}
	Status PeerStatus `json:"status,omitempty"`
}

// PeerSpec says who the peer is and what it may do.
//
// +kubebuilder:validation:XValidation:rule="self.mode != 'OutOfBand' || has(self.outOfBand) && has(self.outOfBand.authURL) && has(self.outOfBand.apiServerURL)",message="mode OutOfBand needs outOfBand.authURL and outOfBand.apiServerURL: give both, or use mode InBand, for which only the gateways must reach each other"
// +kubebuilder:validation:XValidation:rule="!self.stock || has(self.allowedIPs) && size(self.allowedIPs) > 0",message="a stock WireGuard peer needs allowedIPs: the addresses that it may send from"
// +kubebuilder:validation:XValidation:rule="self.stock || !has(self.allowedIPs) || size(self.allowedIPs) == 0",message="allowedIPs are only for stock peers, because a gateway has only its overlay address: remove them, or set stock: true"
// +kubebuilder:validation:XValidation:rule="!self.stock || !has(self.allow) || !('auth' in self.allow)",message="a stock peer cannot use auth, which knows its callers by their overlay addresses: remove auth from allow"
// +kubebuilder:validation:XValidation:rule="!self.stock || !has(self.local) && !has(self.outOfBand)",message="a stock WireGuard peer offers no services: remove local and outOfBand"
// +kubebuilder:validation:XValidation:rule="!self.stock || !has(self.services)",message="a stock WireGuard peer does not support services of clusters: remove services"
// +kubebuilder:validation:XValidation:rule="!self.pending || oldSelf.pending",message="a peer that was let in does not become pending again: delete it to keep it out"
type PeerSpec struct {
	// PublicKey is the WireGuard key of the peer's gateway, as `postern status` and
	// `postern key pub` show it there. Another key means another gateway: the tunnel is recreated.
	//
	// +required
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$')",message="publicKey must be 32 bytes in base64, 44 characters: copy it from `postern key pub` or `postern status` at the peer"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA')",message="publicKey is all zero, which is no key: copy it from `postern key pub` or `postern status` at the peer"
	PublicKey string `json:"publicKey"`

	// PresharedKeySecretRef names a Secret with a WireGuard preshared key in base64, the same
	// at both ends (`wg genpsk` makes one). Peers that join by ticket agree on one automatically.
	//
	// +optional
	PresharedKeySecretRef *SecretKey `json:"presharedKeySecretRef,omitempty"`

	// Endpoints are addresses at which the peer's gateway may be reached, ip:port or
	// host:port. If there are none, the peer must dial.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=261
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\\\\[[0-9A-Fa-f:.]+\\\\]):[1-9][0-9]{0,4}$')",message="an endpoint is ip:port or host:port, such as 198.51.100.7:51820 or [2001:db8::7]:51820"
	Endpoints []string `json:"endpoints,omitempty"`

	// Mode says how auth and the API server are reached: InBand, through the tunnel, or
	// OutOfBand, outside it, at the URLs in outOfBand.
	//
	// +optional
	// +kubebuilder:default=InBand
	// +kubebuilder:validation:Enum=InBand;OutOfBand
	Mode string `json:"mode,omitempty"`

	// OutOfBand says where the peer's auth service and API server are outside the tunnel.
	// With mode InBand these URLs are checked but not used.
	//
	// +optional
	OutOfBand *PeerOutOfBand `json:"outOfBand,omitempty"`

	// Allow lists the services of this gateway that the peer may reach: auth, apiServer, and
	// named ones. Nothing by default.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=40
	// +kubebuilder:validation:items:XValidation:rule="self == 'apiServer' || self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="a service is auth, apiServer, or the name of one in spec.services.named of the gateway's configuration"
	Allow []string `json:"allow,omitempty"`

	// Local are listeners of this gateway that lead to services of the peer. In a cluster,
	// the Service postern-NAME leads there without such a listener.
	//
	// +optional
	Local *PeerLocal `json:"local,omitempty"`

	// Stock says that the peer is plain WireGuard, not a postern gateway.
	//
	// +optional
	// +kubebuilder:default=false
	Stock bool `json:"stock,omitempty"`

	// AllowedIPs are the addresses of a stock peer.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) && cidr(self) == cidr(self).masked()",message="allowedIPs holds addresses such as 10.9.0.2 and prefixes such as 10.9.0.0/24, with no bits set beyond the prefix length"
	AllowedIPs []string `json:"allowedIPs,omitempty"`

	// Pending says that the peer waits until somebody confirms its key, and is ignored until
	// then. Set it to false to let the peer in (as `postern peer approve` does).
	//
	// +optional
	// +kubebuilder:default=false
	Pending bool `json:"pending,omitempty"`

	// Services says which cluster services (Multi-Cluster Services API) are exported to the peer
	// and imported from it, by namespace.
	//
	// +optional
	Services *PeerServices `json:"services,omitempty"`
}

// PeerServices lists the namespaces whose services are exported to a peer and imported from it; by
// default none. A namespace means the same in both clusters. An asterisk matches any characters.
// Namespaces that begin with kube-, and the gateway's own, match only in full.
type PeerServices struct {
	// Export are the namespaces whose exported services the peer may have.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9*]([a-z0-9*-]*[a-z0-9*])?$')",message="a namespace, such as shop, or a pattern of them, such as shop-*"
	Export []string `json:"export,omitempty"`
	// Import are the namespaces whose services are imported from the peer.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9*]([a-z0-9*-]*[a-z0-9*])?$')",message="a namespace, such as shop, or a pattern of them, such as shop-*"
	Import []string `json:"import,omitempty"`
}

// SecretKey names one value in a Secret of the same namespace.
type SecretKey struct {
	// Name is the name of the Secret.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key is the key in its data.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// PeerOutOfBand says where the peer's services are outside the tunnel.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ca) || !has(self.caSecretRef)",message="give the CA certificates in ca or by caSecretRef, not both"
type PeerOutOfBand struct {
	// AuthURL is the https URL of the peer's auth service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHost() != '' && !self.contains('@')",message="authURL must be https://host:port without a user name in it: a token goes into the Secret of tokenSecretRef"
	AuthURL string `json:"authURL,omitempty"`
	// APIServerURL is the https URL of the peer's API server.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHost() != '' && !self.contains('@')",message="apiServerURL must be https://host:port without a user name in it"
	APIServerURL string `json:"apiServerURL,omitempty"`
	// CA holds the CA certificates (PEM) for these URLs; if there are
	// none, the system's are trusted.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----')",message="ca must be PEM certificates (-----BEGIN CERTIFICATE-----)"
	CA string `json:"ca,omitempty"`
	// CASecretRef names a Secret that holds these certificates instead.
	//
	// +optional
	CASecretRef *SecretKey `json:"caSecretRef,omitempty"`
	// TokenSecretRef names a Secret with the token for the peer's auth service.
	//
	// +optional
	TokenSecretRef *SecretKey `json:"tokenSecretRef,omitempty"`
}

// PeerLocal are listeners of this gateway that lead to services of the peer.
type PeerLocal struct {
	// APIServer is the ip:port at which the peer's API server answers here.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9.]+|\\\\[[0-9A-Fa-f:.]+\\\\]):[0-9]{1,5}$')",message="local.apiServer must be ip:port, such as 127.0.0.1:7443"
	APIServer string `json:"apiServer,omitempty"`
	// Named maps the peer's named services to ip:port, or ip:first-last for a service with several
	// ports, with /UDP appended for a UDP service.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 40 && name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$') && self[name].matches('^([0-9.]+|\\\\[[0-9A-Fa-f:.]+\\\\]):[0-9]{1,5}(-[0-9]{1,5})?(/(TCP|UDP))?$'))",message="local.named maps names of services to ip:port, such as registry: 127.0.0.1:5000 or dns: 127.0.0.1:5353/UDP"
	Named map[string]LocalAddress `json:"named,omitempty"`
}

// LocalAddress is an ip:port, or ip:first-last, with /UDP appended for UDP.
//
// +kubebuilder:validation:MaxLength=64
type LocalAddress string
