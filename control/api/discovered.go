package api

import (
	"time"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// States of a discovered gateway.
const (
	// DiscoveredNew: nobody has decided about it. Discovery is not trust.
	DiscoveredNew = "unknown"
	// DiscoveredApproved: it is a peer here, by its discovered key, and not connected. It may have
	// to approve this gateway first.
	DiscoveredApproved = "approved"
	// DiscoveredPending: it is a peer that waits for approval.
	DiscoveredPending = "pending"
	// DiscoveredPeer: it is a connected peer.
	DiscoveredPeer = "peer"
	// DiscoveredConflict: a peer with its name, or one discovered there before, has another key.
	// Nothing it announces is used.
	DiscoveredConflict = "conflict"
	// DiscoveredInvalid: its announcement cannot be used; Problem says why.
	DiscoveredInvalid = "invalid"
)

// DNSSEC status of an answer, as the resolver reports it.
const (
	// DNSSECValidated: the resolver has validated every answer (the AD bit, RFC 4035 §3.2.3).
	DNSSECValidated = "validated"
	// DNSSECNone: the resolver has not validated it. Anybody on the path could have answered.
	DNSSECNone = "none"
	// DNSSECBogus: the resolver has found a wrong signature, and returns no answer.
	DNSSECBogus = "bogus"
)

// Discovered is a gateway that was discovered by multicast DNS on the local network, or in DNS.
type Discovered struct {
	// Name is what it calls itself.
	Name foreign.Text `json:"name"`
	// As is its name here, if it differs from Name.
	As string `json:"as,omitempty"`
	// Source is SourceLAN or SourceDNS.
	Source string `json:"source"`
	// Domain is its domain in DNS, or the interfaces on which it was discovered.
	Domain string `json:"domain,omitempty"`
	// PublicKey is base64; empty if it announces none that can be parsed.
	PublicKey   string `json:"publicKey,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Addresses (ip:port) are the ones that it announces, in order of preference, without those
	// that may not be dialled.
	Addresses []string `json:"addresses"`
	// SeenAt is when it last answered, AgeSeconds how long ago that was.
	SeenAt     time.Time `json:"seenAt,omitzero"`
	AgeSeconds float64   `json:"ageSeconds"`
	// State is one of the Discovered constants.
	State string `json:"state"`
	// Peer is the name of the peer here that it is.
	Peer string `json:"peer,omitempty"`
	// Problem says what is wrong with it, Code which entry of the table of codes that is.
	Problem foreign.Text `json:"problem,omitzero"`
	Code    string       `json:"code,omitempty"`
	// Member reports whether it has proved to know the secret of spec.discovery.lan.secretFile.
	Member       bool     `json:"member,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	// FirstSeenAt is when it was discovered. It expires at ExpiresAt unless it is seen again.
	FirstSeenAt time.Time `json:"firstSeenAt,omitzero"`
	ExpiresAt   time.Time `json:"expiresAt,omitzero"`
	// DNSSEC is one of the DNSSEC constants; empty if it was not discovered in DNS.
	DNSSEC string `json:"dnssec,omitempty"`
}

// DiscoveredList is the response to GET /v1/discovered.
type DiscoveredList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "DiscoveredList"
	// Name and Fingerprint are this gateway's own, for others to compare.
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	// Looking names what is searched: interfaces of the local network and DNS domains. It is empty
	// if discovery is not configured.
	Looking []string `json:"looking"`
	// AnnouncedAs is this gateway's name on the local network. It differs from its own if that was
	// taken there, and is empty while it is not announced.
	AnnouncedAs string `json:"announcedAs,omitempty"`
	// Gateways are sorted by name.
	Gateways []Discovered `json:"gateways"`
	// Problems say why a search finds nothing.
	Problems []DiscoveryProblem `json:"problems,omitempty"`
}

// DiscoveryProblem is what is wrong with a search, not with a gateway that it found.
type DiscoveryProblem struct {
	Where   string       `json:"where"` // the interface or the domain
	Problem foreign.Text `json:"problem"`
	// Steps are what to do, and Fix the same as text; empty if there is nothing to add.
	Steps Steps  `json:"steps,omitempty"`
	Fix   string `json:"fix,omitempty"`
	Code  string `json:"code,omitempty"`
}

// DiscoveredApproveRequest makes a discovered gateway a peer.
type DiscoveredApproveRequest struct {
	// As is its name here; empty takes the name it gives itself.
	As string `json:"as,omitempty"`
	// Allow lists the services that it may reach here.
	Allow []string `json:"allow,omitempty"`
	// Fingerprint must be that of its key, or the key itself. It is required.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// DiscoveredApproveResponse is the new peer.
type DiscoveredApproveResponse struct {
	Peer        string `json:"peer"`
	PublicKey   string `json:"publicKey"`
	Fingerprint string `json:"fingerprint"`
	// User is the peer's user at this cluster's API server; empty if no identities are issued here.
	User string `json:"user,omitempty"`
}
