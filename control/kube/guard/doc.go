// Package guard finds out whether something keeps the gateway's account to what the gateway writes.
//
// RBAC cannot match the beginnings of names or what is in an object, so by its Role alone whoever
// has the account's token could be any account of its namespace, take the cluster's traffic, or run
// another image. The ValidatingAdmissionPolicy cmd/postern/deploy/rbac/gateway-policy.yaml takes
// that back. A gateway works without it as well, and says so: it asks for what must be refused,
// without having it done (dry run). Any other policy that refuses will do.
package guard
