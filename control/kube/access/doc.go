// Package access lets pods of our own cluster use what peers offer: [Keeper] keeps a Service
// and a kubeconfig for each peer, [Guard] says which pods may connect.
//
// # Objects
//
// Of a peer that offers something, in the gateway's namespace:
//
//	Service        postern-PEER             6443 → the listener for its API server, and a port
//	                                        for each named service; only the active pod is behind it
//	Secret         postern-PEER-kubeconfig  kubeconfig, ca.crt, and token or tls.crt and tls.key
//	NetworkPolicy  postern-PEER             from pods with the label postern.dev/peer-PEER: allow
//	                                        alone, of any namespace
//
// All bear the label postern.dev/peer: PEER and those of the release, and are written by
// server-side apply (Kubernetes API, "Server-Side Apply") with the field manager "postern":
// what others add stays, what they change of ours is put back. An object of such a name
// without our labels is never touched; it is a problem with a code. Objects of peers that
// are gone are deleted, by their UID.
//
// A NetworkPolicy per peer, and not one of the chart for all: the label's key has the peer's
// name in it, which the chart does not know, and a policy cannot match parts of keys. It also
// lets UDP to the gateway's port in, since a pod that any policy selects is closed to
// everything that none allows. Where the gateway has no right for NetworkPolicies, there are
// none, and Guard closes the listeners by itself.
//
// # Who may connect
//
// The pod with the source address, as the API server knows it, must have the label, a network
// of its own, and not be about to end. Answers hold for 10 s, refusals for 2 s. While the API
// server is away, what was last known of an address holds for 10 min; an address of which
// nothing is known is refused.
package access
