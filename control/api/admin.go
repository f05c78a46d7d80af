package api

import "time"

// The documents of the admin socket, in the order in which an operator uses them.

// InviteRequest asks for a ticket.
type InviteRequest struct {
	// Name is the joiner's name here; empty takes the name it gives itself.
	Name string   `json:"name,omitempty"`
	TTL  Duration `json:"ttl,omitempty"`
	// For binds the ticket to one public key (base64).
	For     string   `json:"for,omitempty"`
	Allow   []string `json:"allow"`
	Approve bool     `json:"approve,omitempty"`
}

// InviteResponse contains the ticket, which is a secret.
type InviteResponse struct {
	Ticket     string      `json:"ticket"`
	ID         string      `json:"id"`
	ExpiresAt  time.Time   `json:"expiresAt"`
	Candidates []Candidate `json:"candidates"`
	// User is the joiner's user at this cluster's API server. It is empty if the joiner names
	// itself, because the user then contains its key's fingerprint, and if no identities are issued
	// here.
	User     string   `json:"user,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// JoinRequest redeems a ticket.
type JoinRequest struct {
	Ticket string   `json:"ticket"`
	Name   string   `json:"name,omitempty"`
	Wait   Duration `json:"wait,omitempty"`
	// Allow is what the inviter may reach here.
	Allow []string `json:"allow,omitempty"`
	// Local maps services of the inviter to listen addresses here.
	Local map[string]string `json:"local,omitempty"`
}

// Outcomes of a join.
const (
	JoinConnected = "connected"
	// JoinPending means registered, but not yet approved by the inviter.
	JoinPending = "pending"
	// JoinReply means that the inviter could not be reached and must accept Reply.
	JoinReply = "reply"
)

// JoinResponse is the result of a join.
type JoinResponse struct {
	Outcome string `json:"outcome"`
	Peer    string `json:"peer"`
	// Reply is the text for `postern accept`, a secret. Set with JoinReply.
	Reply string `json:"reply,omitempty"`
	// Reason says what was tried and how it failed. Set with JoinReply.
	Reason string `json:"reason,omitempty"`
	// Granted lists the services that this gateway may reach at the inviter.
	Granted []string `json:"granted,omitempty"`
	// Fingerprint is that of this gateway's key, for the inviter to compare. Set with JoinPending,
	// and with JoinReply if the ticket requires approval.
	Fingerprint string `json:"fingerprint,omitempty"`
	// User is the inviter's user at this cluster's API server; empty if no identities are issued
	// here.
	User string `json:"user,omitempty"`
}

// AcceptRequest makes the inviter dial.
type AcceptRequest struct {
	Reply string   `json:"reply"`
	Wait  Duration `json:"wait,omitempty"`
}

// AcceptResponse is the result of an AcceptRequest.
type AcceptResponse struct {
	Peer      string `json:"peer"`
	Connected bool   `json:"connected"`
	Reason    string `json:"reason,omitempty"`
	// User is the peer's user at this cluster's API server; empty if no identities are issued here.
	User string `json:"user,omitempty"`
}

// PeerAddRequest adds or replaces a peer that is kept in the state directory.
type PeerAddRequest struct {
	Peer Peer `json:"peer"`
	// PresharedKey is given here because the file need not outlive the request.
	PresharedKey string `json:"presharedKey,omitempty"`
}

// PeerAllowRequest replaces what a peer may reach here.
type PeerAllowRequest struct {
	Allow []string `json:"allow"`
}

// PeerTryRequest makes one of two changes to a peer. It is undone unless it is confirmed.
type PeerTryRequest struct {
	Within Duration          `json:"within"`
	Allow  *PeerAllowRequest `json:"allow,omitempty"`
	Local  *PeerLocalRequest `json:"local,omitempty"`
}

// PeerTryResponse says until when the change can be confirmed.
type PeerTryResponse struct {
	UndoneAt time.Time `json:"undoneAt"`
}

// ConfigTryRequest reloads the configuration. The change is undone unless it is confirmed.
type ConfigTryRequest struct {
	Within Duration `json:"within"`
}

// ConfigTryResponse says until when the change can be confirmed. It is empty if the configuration
// is the one that was last confirmed.
type ConfigTryResponse struct {
	UndoneAt time.Time `json:"undoneAt,omitzero"`
}

// PeerApproveRequest approves a pending peer.
type PeerApproveRequest struct {
	// Fingerprint must be that of the peer's key, or the key itself: a name alone is no proof. It
	// is required.
	Fingerprint string `json:"fingerprint"`
}

// PeerTokenRequest asks for a token that identifies a peer outside the tunnel.
type PeerTokenRequest struct {
	// TTL is how long the token is valid, 1m to 8784h; 0 takes 2160h (90 days).
	TTL Duration `json:"ttl,omitempty"`
}

// PeerTokenResponse contains the token, which is a secret.
type PeerTokenResponse struct {
	Token    string    `json:"token"`
	NotAfter time.Time `json:"notAfter"`
}

// KeyRotateRequest asks the gateway to rotate its key.
type KeyRotateRequest struct {
	// Wait is how long peers that do not answer are retried; 0 takes 30 s.
	Wait Duration `json:"wait,omitempty"`
	// Force switches to the next key even if some peers do not know it.
	Force bool `json:"force,omitempty"`
}

// KeyRotateResponse says who knows the next key, and whether it is in use.
type KeyRotateResponse struct {
	// PublicKey is the next key, base64.
	PublicKey string           `json:"publicKey"`
	Told      []string         `json:"told"`
	Untold    []UnnotifiedPeer `json:"untold,omitempty"`
	Rotated   bool             `json:"rotated"`
	// Warnings say what else has to be done.
	Warnings []string `json:"warnings,omitempty"`
}

// UnnotifiedPeer is a peer that does not know the gateway's next key.
type UnnotifiedPeer struct {
	Peer   string `json:"peer"`
	Reason string `json:"reason"`
}

// PeerLocalRequest adds or replaces listeners; an empty address removes one.
type PeerLocalRequest struct {
	Local map[string]string `json:"local"`
}

// PingRequest asks for one echo.
type PingRequest struct {
	// Layer is probe, wg, overlay, auth or apiServer.
	Layer string `json:"layer"`
	Seq   int    `json:"seq"`
}

// PingReply is one line of `ping -o json`.
type PingReply struct {
	Seq        int     `json:"seq"`
	RTTSeconds float64 `json:"rttSeconds"`
	Path       string  `json:"path"`
	Remote     string  `json:"remote"`
	Layer      string  `json:"layer"`
	Error      string  `json:"error,omitempty"`
}

// Kubeconfig contains what a kubeconfig for a peer's API server needs.
type Kubeconfig struct {
	Peer string `json:"peer"`
	// Server is the local listener's URL. With Direct it is the API server's own, outside the
	// tunnel.
	Server     string `json:"server"`
	Direct     bool   `json:"direct,omitempty"`
	CAData     string `json:"caData,omitempty"` // PEM
	ServerName string `json:"serverName,omitempty"`
}

// Credential is the identity that the peer issued to this gateway, a secret.
type Credential struct {
	ClientCertificate string    `json:"clientCertificate,omitempty"` // PEM
	ClientKey         string    `json:"clientKey,omitempty"`         // PEM
	Token             string    `json:"token,omitempty"`
	NotAfter          time.Time `json:"notAfter"`
}

// Problem is the answer of every failed admin request.
type Problem struct {
	// Message says what failed, and why.
	Message string `json:"message"`
	// Hint says what to do; empty when there is nothing to add.
	Hint string `json:"hint,omitempty"`
	// Usage marks an error in the request itself (exit code 2).
	Usage bool `json:"usage,omitempty"`
	// Soon marks a temporary error: a retry within seconds may succeed.
	Soon bool `json:"soon,omitempty"`
}
