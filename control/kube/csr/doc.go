// Package csr issues identities that the gateway's own cluster signs: client certificates by
// CertificateSigningRequests (certificates.k8s.io/v1), for the signer
// kubernetes.io/kube-apiserver-client. Unlike a local CA this needs no settings at the API
// server, but a powerful permission, see the policy.
//
// # Rules
//
// Kubernetes signs the request's own subject, which only the owner of the key can set. So the
// peer is told which user to request (postern:peer:GATEWAY:NAME, see package auth), and its
// request is refused unless its subject is exactly that user, without groups and extensions. A
// request is only for client authentication and for at most 24 h. The gateway only approves
// requests that it created itself, and checks the certificate before it hands it out.
//
// An object is named postern-PEER-HASH, with a hash over the gateway, the peer's key and the key
// to certify. So a repeated request, from a peer that got no answer or by the other replica,
// finds the first one's object. Objects are deleted five minutes after their creation, and those
// of removed peers at once. A certificate cannot be revoked: it ends by its expiry.
//
// # Policy
//
// With RBAC alone, permission to approve requests for that signer means permission to be anyone in
// the cluster. A ValidatingAdmissionPolicy (cmd/postern/deploy/rbac/csr-policy.yaml) restricts the
// gateway's account: it may only create, approve and delete its own requests, for this signer, for
// client authentication, for 10 min to 24 h, and for users postern:peer:GATEWAY:* without groups.
// So a gateway cannot get certificates for peers of another one. CEL cannot parse X.509, but need
// not: it can decode base64, and in a request for an ECDSA P-256 key every byte before the user's
// name follows from the length of that name. The issuer tests at its start whether requests for
// other users are refused, and again before it issues something if the last test is older than ten
// minutes. It issues nothing while they are not refused.
package csr
