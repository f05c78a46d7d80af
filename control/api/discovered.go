package api

import (
	"time"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// States of a gateway that was found.
const (
	// DiscoveredNew: nobody has decided on it. Finding is not trusting.
	DiscoveredNew = "unknown"
	// DiscoveredApproved: it is a peer here, by the key that was found, and not connected: it
	// may have to approve this gateway first.
	DiscoveredApproved = "approved"
	// DiscoveredPending: it is a peer that waits for approval.
	DiscoveredPending = "pending"
	// DiscoveredPeer: it is a peer that is connected.
	DiscoveredPeer = "peer"
	// DiscoveredConflict: a peer of its name, or one that was found there before, has another
	// key. Nothing of it is used.
	DiscoveredConflict = "conflict"
	// DiscoveredInvalid: what it announces cannot be used; Problem says why.
	DiscoveredInvalid = "invalid"
)

// What DNSSEC says of what was found, as the resolver that was asked tells.
const (
	// DNSSECValidated: the resolver has validated every answer (the AD bit, RFC 4035 §3.2.3).
	DNSSECValidated = "validated"
	// DNSSECNone: it has not, or does not validate; anybody on the way could have answered.
	DNSSECNone = "none"
	// DNSSECBogus: it has found a signature to be wrong, and gives no answer.
	DNSSECBogus = "bogus"
)

// Discovered is a gateway that was found: by multicast DNS on the local network, or in DNS.
type Discovered struct {
	// Name is what it calls itself.
	Name foreign.Text `json:"name"`
	// As is what it would be called here, when that is something else.
	As string `json:"as,omitempty"`
	// Source is SourceLAN or SourceDNS.
	Source string `json:"source"`
	// Domain is where in DNS, or the interfaces on which it was found.
	Domain string `json:"domain,omitempty"`
	// PublicKey is base64; empty when it announces none that can be read.
	PublicKey   string `json:"publicKey,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Addresses (ip:port) are where it says that it may be reached, the ones to try first
	// first; those that may not be dialled are left out.
	Addresses []string `json:"addresses"`
	// SeenAt is when it last answered, AgeSeconds how long ago that is.
	SeenAt     time.Time `json:"seenAt,omitzero"`
	AgeSeconds float64   `json:"ageSeconds"`
	// State is one of the Discovered constants.
	State string `json:"state"`
	// Peer is the name of the peer here that it is.
	Peer string `json:"peer,omitempty"`
	// Problem says what is wrong with it, Code which entry of the table of codes that is.
	Problem foreign.Text `json:"problem,omitzero"`
	Code    string       `json:"code,omitempty"`
	// Member says that it proves to know the secret of spec.discovery.lan.secretFile.
	Member       bool     `json:"member,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	// FirstSeenAt and ExpiresAt bound the time in which it is known, unless it is heard again.
	FirstSeenAt time.Time `json:"firstSeenAt,omitzero"`
	ExpiresAt   time.Time `json:"expiresAt,omitzero"`
	// DNSSEC is one of the DNSSEC constants; empty for what DNS did not tell.
	DNSSEC string `json:"dnssec,omitempty"`
}

// DiscoveredList is the answer of GET /v1/discovered.
type DiscoveredList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "DiscoveredList"
	// Name and Fingerprint are this gateway's own, for others to compare.
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	// Looking names what is searched: the local network's interfaces, domains of DNS. Empty
	// when this gateway is not configured to look for others.
	Looking []string `json:"looking"`
	// AnnouncedAs is the name that this gateway has on the local network: another than its
	// own when that was taken there; empty while it is not announced.
	AnnouncedAs string `json:"announcedAs,omitempty"`
	// Gateways are in the order of their names.
	Gateways []Discovered `json:"gateways"`
	// Problems say why a search finds nothing.
	Problems []DiscoveryProblem `json:"problems,omitempty"`
}

// DiscoveryProblem is what is wrong with a search, rather than with one that it found.
type DiscoveryProblem struct {
	Where   string       `json:"where"` // the interface or the domain
	Problem foreign.Text `json:"problem"`
	// Steps are what to do, and Fix the same in words; empty where there is nothing to add.
	Steps Steps  `json:"steps,omitempty"`
	Fix   string `json:"fix,omitempty"`
	Code  string `json:"code,omitempty"`
}

// DiscoveredApproveRequest makes a gateway that was found a peer.
type DiscoveredApproveRequest struct {
	// As is what it will be called here; empty takes its own name.
	As string `json:"as,omitempty"`
	// Allow is what it may reach here.
	Allow []string `json:"allow,omitempty"`
	// Fingerprint must be that of its key, or the key itself. Without one nobody is
	// approved.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// DiscoveredApproveResponse is what has become a peer.
type DiscoveredApproveResponse struct {
	Peer        string `json:"peer"`
	PublicKey   string `json:"publicKey"`
	Fingerprint string `json:"fingerprint"`
	// User is who the peer is at this cluster's API server; empty when no identities are
	// issued here.
	User string `json:"user,omitempty"`
}
