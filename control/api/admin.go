package api

import "time"

// The documents of the admin socket, in the order in which an operator meets them.

// InviteRequest asks for a ticket.
type InviteRequest struct {
	// Name is what the joiner will be called here; empty takes its own name.
	Name string   `json:"name,omitempty"`
	TTL  Duration `json:"ttl,omitempty"`
	// For binds the ticket to one public key (base64).
	For     string   `json:"for,omitempty"`
	Allow   []string `json:"allow"`
	Approve bool     `json:"approve,omitempty"`
}

// InviteResponse carries the ticket: a secret.
type InviteResponse struct {
	Ticket     string      `json:"ticket"`
	ID         string      `json:"id"`
	ExpiresAt  time.Time   `json:"expiresAt"`
	Candidates []Candidate `json:"candidates"`
	// User is who the joiner will be at this cluster's API server; empty when it names
	// itself, since its key's fingerprint is part of it then, or when no identities are
	// issued here.
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
	// JoinPending: registered, but the inviter has yet to approve.
	JoinPending = "pending"
	// JoinReply: the inviter could not be reached; it must accept Reply.
	JoinReply = "reply"
)

// JoinResponse is how a join ended.
type JoinResponse struct {
	Outcome string `json:"outcome"`
	Peer    string `json:"peer"`
	// Reply is the text for `postern accept`: a secret. Set with JoinReply.
	Reply string `json:"reply,omitempty"`
	// Reason says what was tried and how it failed. Set with JoinReply.
	Reason string `json:"reason,omitempty"`
	// Granted is what we may reach at the inviter.
	Granted []string `json:"granted,omitempty"`
	// Fingerprint of our key, for the inviter to compare. Set with JoinPending.
	Fingerprint string `json:"fingerprint,omitempty"`
	// User is who the inviter is at this cluster's API server; empty when no identities are
	// issued here.
	User string `json:"user,omitempty"`
}

// AcceptRequest makes the inviter dial.
type AcceptRequest struct {
	Reply string   `json:"reply"`
	Wait  Duration `json:"wait,omitempty"`
}

// AcceptResponse is how it ended.
type AcceptResponse struct {
	Peer      string `json:"peer"`
	Connected bool   `json:"connected"`
	Reason    string `json:"reason,omitempty"`
	// User is who the peer is at this cluster's API server; empty when no identities are
	// issued here.
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

// PeerTryRequest makes one of two changes of a peer, which is undone unless it is confirmed.
type PeerTryRequest struct {
	Within Duration          `json:"within"`
	Allow  *PeerAllowRequest `json:"allow,omitempty"`
	Local  *PeerLocalRequest `json:"local,omitempty"`
}

// PeerTryResponse says until when it can be confirmed.
type PeerTryResponse struct {
	UndoneAt time.Time `json:"undoneAt"`
}

// ConfigTryRequest has the configuration read again, which is undone unless it is confirmed.
type ConfigTryRequest struct {
	Within Duration `json:"within"`
}

// ConfigTryResponse says until when it can be confirmed; nothing where it is the configuration that
// was confirmed last.
type ConfigTryResponse struct {
	UndoneAt time.Time `json:"undoneAt,omitzero"`
}

// PeerApproveRequest lets in a peer that waits for it.
type PeerApproveRequest struct {
	// Fingerprint must be that of its key, or the key itself: a name alone is no proof.
	// Without one nobody is let in.
	Fingerprint string `json:"fingerprint"`
}

// PeerTokenRequest asks for a token by which a peer is known outside the tunnel.
type PeerTokenRequest struct {
	// TTL is how long it is good, 1m to 8784h; 0 takes 2160h (90 days).
	TTL Duration `json:"ttl,omitempty"`
}

// PeerTokenResponse is one. It is a secret.
type PeerTokenResponse struct {
	Token    string    `json:"token"`
	NotAfter time.Time `json:"notAfter"`
}

// KeyRotateRequest asks for another key of the gateway's own.
type KeyRotateRequest struct {
	// Wait is how long peers that do not answer are tried; 0 takes 30 s.
	Wait Duration `json:"wait,omitempty"`
	// Force takes the next key though there are peers that do not know it.
	Force bool `json:"force,omitempty"`
}

// KeyRotateResponse says who knows the next key, and whether it is in force.
type KeyRotateResponse struct {
	// PublicKey is the next one, base64.
	PublicKey string           `json:"publicKey"`
	Told      []string         `json:"told"`
	Untold    []UnnotifiedPeer `json:"untold,omitempty"`
	Rotated   bool             `json:"rotated"`
	// Warnings are what has to be done besides.
	Warnings []string `json:"warnings,omitempty"`
}

// UnnotifiedPeer is one that does not know the gateway's next key.
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

// Kubeconfig is what it takes to write one for a peer's API server.
type Kubeconfig struct {
	Peer string `json:"peer"`
	// Server is the local listener's URL. With Direct it is the API server's own, outside
	// the tunnel.
	Server     string `json:"server"`
	Direct     bool   `json:"direct,omitempty"`
	CAData     string `json:"caData,omitempty"` // PEM
	ServerName string `json:"serverName,omitempty"`
}

// Credential is the identity the peer issued to us: a secret.
type Credential struct {
	ClientCertificate string    `json:"clientCertificate,omitempty"` // PEM
	ClientKey         string    `json:"clientKey,omitempty"`         // PEM
	Token             string    `json:"token,omitempty"`
	NotAfter          time.Time `json:"notAfter"`
}

// Problem is the answer of every failed admin request.
type Problem struct {
	// What failed, and why.
	Message string `json:"message"`
	// Hint says what to do; empty when there is nothing to add.
	Hint string `json:"hint,omitempty"`
	// Usage marks an error in the request (exit code 2) rather than in the world.
	Usage bool `json:"usage,omitempty"`
	// Soon: what is asked for is on its way, and to ask again within seconds is worth it.
	Soon bool `json:"soon,omitempty"`
}
