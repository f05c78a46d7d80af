// Package kube connects a gateway with its own cluster's API server; only it and its subpackages
// import k8s.io in what is shipped. The package itself issues identities: [TokenIssuer] gives peers
// tokens of ServiceAccounts (TokenRequest API, authentication.k8s.io/v1).
//
// # Rules
//
// Every peer has its own ServiceAccount, postern-peer-NAME with our name for it, all in one
// namespace that holds nothing else: RBAC cannot match prefixes of names, so what a gateway may do
// with one account of a namespace it may do with all.
//
// An account has two labels, the peer's name and the gateway's, and the peer's public key as an
// annotation. Accounts without them are never touched. An account for another key is left over from
// an earlier peer: it is deleted, which ends its tokens, and recreated.
//
// The peers determine which accounts there should be: [TokenIssuer.SetPeers]. All others are
// deleted as soon as the API server answers. So removals need not be stored, and one that happened
// while the API server was away, or before a restart, is caught up on.
package kube
