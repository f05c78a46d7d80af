package api

import "time"

// States of a gateway that was found.
const (
	// DiscoveredNew: nobody has decided on it. Finding is not trusting.
	DiscoveredNew = "new"
	// DiscoveredPending: it is a peer that waits for approval.
	DiscoveredPending = "pending"
	// DiscoveredPeer: it is a peer, by the key that was found.
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
	// Name is what it calls itself, made fit to be shown.
	Name string `json:"name"`
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
	Problem string `json:"problem,omitempty"`
	Code    string `json:"code,omitempty"`
	// DNSSEC is one of the DNSSEC constants; empty for what DNS did not tell.
	DNSSEC string `json:"dnssec,omitempty"`
}

// DiscoveredList is the answer of GET /v1/discovered.
type DiscoveredList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "DiscoveredList"
	// Looking names what is searched: the local network's interfaces, domains of DNS. Empty
	// when this gateway is not configured to look for others.
	Looking []string `json:"looking"`
	// Gateways are in the order of their names.
	Gateways []Discovered `json:"gateways"`
	// Problems say why a search finds nothing.
	Problems []DiscoveryProblem `json:"problems,omitempty"`
}

// DiscoveryProblem is what is wrong with a search, rather than with one that it found.
type DiscoveryProblem struct {
	Where   string `json:"where"` // the interface or the domain
	Problem string `json:"problem"`
	Code    string `json:"code,omitempty"`
}
