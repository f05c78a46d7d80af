// Package kube is what a gateway has to do with its own cluster's API server, and the only
// importer of k8s.io in what is shipped. So far that is issuing: [TokenIssuer] gives peers
// tokens of ServiceAccounts (TokenRequest API, authentication.k8s.io/v1).
//
// # Rules
//
// Every peer has a ServiceAccount of its own, postern-peer-NAME by the name that we know it
// by, all in one namespace that holds nothing else: RBAC cannot match the beginnings of
// names, so what a gateway may do with one account of a namespace it may do with all.
//
// An account bears two labels, the peer's name and the gateway's, and the peer's public key
// as an annotation. What does not bear them is never touched. An account for another key
// is what is left of an earlier peer: it is deleted, which ends its tokens, and recreated.
//
// Which accounts there should be is who the peers are: [TokenIssuer.SetPeers]. What is there
// besides is deleted, as soon as the API server can be asked; so nothing has to be
// remembered of a removal, and one that was made while the API server was away, or before
// a restart, is made good.
package kube
