// Package csr issues identities that the gateway's own cluster signs: client certificates by
// CertificateSigningRequests (certificates.k8s.io/v1), for the signer
// kubernetes.io/kube-apiserver-client. Nothing has to be set at the API server, as it has to
// for a local CA; but the right that it takes is a mighty one, see the policy.
//
// # Rules
//
// Kubernetes signs a request's own subject, and only the owner of the key can write that. So
// the peer is told which user to ask for (postern:peer:GATEWAY:NAME, see package auth),
// and its request is refused unless that is its whole subject, without groups and without
// extensions. A request is for client authentication alone and for at most 24 h; the gateway
// approves what it has made itself, and what the signer made of it is looked at before it is
// given out.
//
// An object is called postern-PEER-HASH, the hash being over the gateway, the peer's key and
// the key that is to be certified: a request that is repeated, by a peer that got no answer
// or by the other replica, finds the object of the first. Objects are deleted five minutes
// after they were made, and those of removed peers at once. A certificate cannot be called
// back: it ends by its expiry.
//
// # Policy
//
// To approve requests for that signer is, by RBAC alone, to be anyone in the cluster. A
// ValidatingAdmissionPolicy (cmd/postern/deploy/rbac/csr-policy.yaml) takes that back from the
// gateway's account: it may make, approve and delete only its own requests, for this signer,
// for client authentication, for 10 min to 24 h, and for users postern:peer:GATEWAY:* without
// groups: two gateways of one cluster have nothing of each other. CEL reads no X.509, but need
// not: it can take base64 apart, and in a request for an ECDSA P-256 key every byte before the
// user's name follows from the length of that name. The issuer tries at its start, and every
// ten minutes, whether requests for other users are refused, and issues nothing while they are
// not.
package csr
