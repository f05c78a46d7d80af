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
// RBAC knows a peer only by its user name, so whoever gets the name gets everything bound to it,
// even by bindings older than the peer. The identity name, from which the user name is made, is
// decided once, when the peer is enrolled:
//
//   - NAME, where an operator of the issuing side chose the name (`invite --name`,
//     `peer add`, `join --name`, `approve --as`, the configuration file, a Peer object);
//   - NAME and a part of its key's fingerprint, where the peer named itself ([SelfNamed]).
//
// It stays when the peer's key is rotated, and no other key gets it while a certificate issued for
// it is valid (see [Ledger]).

// UserPrefix is the prefix of the user name of every peer with certificates.
const UserPrefix = "postern:peer:"

// selfNamedBytes of the overlay hash are in the name of a peer that named itself: 80 bits, of which
// the first 64 are the fingerprint that people compare. To become a user for whom a binding was
// left behind, someone would have to generate some 2^80 keys: at 2^31 keys a second, a fast
// graphics card, that takes 18 million years. Two keys with the same part take 2^40, but then both
// have the same owner.
const selfNamedBytes = 10

// MaxIdentityName bounds identity names, in characters. Labels have up to 63 (RFC 1123 §2.1), and a
// user of two names and the prefix must stay below 117 for the policy of package csr.
const MaxIdentityName = api.MaxNameLength + 1 + 2*selfNamedBytes

// maxUser bounds users, in characters: both names and the prefix, or an account's.
const maxUser = 256

// SelfNamed returns the identity name of a peer that chose its own name.
func SelfNamed(name string, k peer.PublicKey) string {
	a := peer.OverlayAddr(k).As16()
	return name + "-" + hex.EncodeToString(a[1:1+selfNamedBytes])
}

// Subject is the peer that an identity is for.
type Subject struct {
	// Name is our name for the peer.
	Name string
	// Identity is its identity name; empty means Name.
	Identity  string
	PublicKey peer.PublicKey
}

// IdentityName returns the name of its user or account.
func (s Subject) IdentityName() string { return cmp.Or(s.Identity, s.Name) }

// User returns the subject's user name at the API server, if that does not include the gateway's
// name.
func (s Subject) User() string { return UserPrefix + s.IdentityName() }

// userForm matches the users of peers: with the gateway's name, or without.
var userForm = regexp.MustCompile("^" + UserPrefix + "(" + label + ":)?" + label + "$")

// label is a DNS label.
const label = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
