package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phases of a Ticket.
const (
	// TicketPending: nothing has happened yet.
	TicketPending = "Pending"
	// TicketOpen: an invitation that can be redeemed; its text is in the Secret.
	TicketOpen = "Open"
	// TicketReply: a join whose inviter does not answer; the reply that it must accept is in
	// the Secret.
	TicketReply = "Reply"
	// TicketRedeemed: an invitation that somebody redeemed.
	TicketRedeemed = "Redeemed"
	// TicketExpired: an invitation whose time ran out.
	TicketExpired = "Expired"
	// TicketJoined: a join that the inviter answered.
	TicketJoined = "Joined"
	// TicketFailed: an invitation or a join that is not tried again.
	TicketFailed = "Failed"
)

// TicketReady is the condition of a Ticket: an invitation can be or was redeemed, a join has
// succeeded.
const TicketReady = "Ready"

// Keys in the data of a Ticket's Secret.
const (
	SecretTicket = "ticket"
	SecretReply  = "reply"
)

// Ticket invites a peer, or joins the peer that made a ticket. The ticket's text is in a
// Secret: the gateway creates it for an invitation, and the operator for a join. Anyone
// who may create Tickets can grant the gateway's services to strangers.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=psticket,categories=postern
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Peer",type=string,JSONPath=`.status.peer`
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.status.secretRef.name`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expiresAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 40 characters: the ticket's Secret is named after it"
type Ticket struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec TicketSpec `json:"spec"`
	// +optional
	Status TicketStatus `json:"status,omitempty"`
}

// TicketSpec says what the ticket is for.
//
// +kubebuilder:validation:XValidation:rule="has(self.invite) != has(self.join)",message="a Ticket either invites or joins: give exactly one of invite and join"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Ticket cannot be changed: delete it, which revokes an open invitation, and create another"
type TicketSpec struct {
	// Invite makes a ticket.
	//
	// +optional
	Invite *TicketInvite `json:"invite,omitempty"`
	// Join redeems a ticket.
	//
	// +optional
	Join *TicketJoin `json:"join,omitempty"`
}

// TicketInvite is an invitation.
type TicketInvite struct {
	// Name is the joiner's name here; by default, the one it gives itself.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="name must be a DNS label: lower-case letters, digits and inner hyphens"
	Name string `json:"name,omitempty"`
	// TTL is how long the ticket can be redeemed, 1m to 720h; 1h by default.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="ttl must be a duration from 1m to 720h, such as 24h or 1h30m"
	TTL string `json:"ttl,omitempty"`
	// For is the public key of the only gateway that may redeem it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$')",message="for must be a public key of 32 bytes in base64, 44 characters, as `postern key pub` prints at the joiner"
	For string `json:"for,omitempty"`
	// Allow lists the services here that the joiner may reach: auth, apiServer, and named
	// ones. The default is auth and apiServer; an empty list grants nothing.
	//
	// +optional
	// +kubebuilder:default={"auth","apiServer"}
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=40
	// +kubebuilder:validation:items:XValidation:rule="self == 'apiServer' || self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="a service is auth, apiServer, or the name of one in spec.services.named of the gateway's configuration"
	Allow []string `json:"allow"`
	// Approve makes the joiner wait until somebody confirms its key: its Peer is pending.
	//
	// +optional
	Approve bool `json:"approve,omitempty"`
}

// TicketJoin redeems a ticket.
type TicketJoin struct {
	// SecretRef names the Secret with the ticket's text.
	//
	// +required
	SecretRef SecretKey `json:"secretRef"`
	// Name is the inviter's name here; by default, the one it gives itself.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="name must be a DNS label: lower-case letters, digits and inner hyphens"
	Name string `json:"name,omitempty"`
	// Allow lists the services here that the inviter may reach; nothing by default.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=40
	// +kubebuilder:validation:items:XValidation:rule="self == 'apiServer' || self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="a service is auth, apiServer, or the name of one in spec.services.named of the gateway's configuration"
	Allow []string `json:"allow,omitempty"`
}

// TicketStatus is the state of the ticket. Only the gateway writes it.
type TicketStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase is Pending, Open, Redeemed, Expired or Failed for an invitation, and Pending,
	// Reply, Joined or Failed for a join.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`
	// SecretRef names the Secret with the text to hand over: a ticket for the joiner, or a reply
	// for the inviter. It is deleted with the Ticket.
	//
	// +optional
	SecretRef *SecretKey `json:"secretRef,omitempty"`
	// ID is the ticket's id, which is not secret.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id,omitempty"`
	// ExpiresAt is when an invitation expires.
	//
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// Peer is the name here of the peer that redeemed the ticket or was joined.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Peer string `json:"peer,omitempty"`
	// RedeemedBy is the public key of the gateway that redeemed an invitation.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RedeemedBy string `json:"redeemedBy,omitempty"`
	// Message says what to do, in a sentence.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// Conditions holds the condition Ready.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TicketList is a list of Tickets.
//
// +kubebuilder:object:root=true
type TicketList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Ticket `json:"items"`
}
