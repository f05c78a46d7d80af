// Package guard checks whether a policy limits the gateway's account to what the gateway writes.
//
// RBAC can match neither prefixes of names nor the content of objects. So with only its Role,
// whoever has the account's token could act as any account of its namespace, take over the
// cluster's traffic, or run another image. The ValidatingAdmissionPolicy
// cmd/postern/deploy/rbac/gateway-policy.yaml prevents that. A gateway works without it, but
// reports that it is missing: it sends requests that must be refused, as dry runs. Any other
// policy that refuses them is fine, too.
package guard
