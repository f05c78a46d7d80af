package auth

import (
	"cmp"
	"encoding/hex"
	"regexp"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

// # Identity names
//
// RBAC knows a peer by its user name alone, so whoever gets the name gets what is bound to
// it, be the binding older than the peer. The identity name, which makes the user name, is
// decided once, when the peer is enrolled:
//
//   - NAME, where an operator of the issuing side chose the name (`invite --name`,
//     `peer add`, `join --name`, `approve --as`, the configuration file, a Peer object);
//   - NAME and a part of its key's fingerprint, where the peer named itself ([SelfNamed]).
//
// It stays when the peer's key is rotated, and no other key gets it for as long as a
// certificate that was issued for it is valid (see [Ledger]).

// UserPrefix begins the user name of every peer that has certificates.
const UserPrefix = "postern:peer:"

// selfNamedBytes of the overlay hash are in the name of a peer that named itself: 80 bits,
// of which the first 64 are the fingerprint that people compare. Somebody who wants to be a
// user that a binding was left behind for would have to make some 2^80 keys to find one with
// that part: at 2^31 keys a second, which is a fast graphics card, 18 million years. Two
// keys with the same part take 2^40, but both are then the same owner's.
const selfNamedBytes = 10

// MaxIdentityName bounds identity names, in characters. Labels hold 63 (RFC 1123 §2.1), and
// a user of two names and the prefix must stay below 117 for the policy of package csr.
const MaxIdentityName = api.MaxNameLength + 1 + 2*selfNamedBytes

// maxUser bounds users, in characters: both names, and the prefix; or an account's.
const maxUser = 256

// SelfNamed is the identity name of a peer that chose its name itself.
func SelfNamed(name string, k peer.PublicKey) string {
	a := peer.OverlayAddr(k).As16()
	return name + "-" + hex.EncodeToString(a[1:1+selfNamedBytes])
}

// Subject is the peer an identity is for.
type Subject struct {
	// Name is what we call the peer.
	Name string
	// Identity is its identity name; empty is Name.
	Identity  string
	PublicKey peer.PublicKey
}

// IdentityName is what its user or account is named by.
func (s Subject) IdentityName() string { return cmp.Or(s.Identity, s.Name) }

// User is the subject's user name at the API server, where no gateway's name is part of it.
func (s Subject) User() string { return UserPrefix + s.IdentityName() }

// userForm is that of the users of peers: with the gateway's name, or without.
var userForm = regexp.MustCompile("^" + UserPrefix + "(" + label + ":)?" + label + "$")

// label is a DNS label.
const label = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
