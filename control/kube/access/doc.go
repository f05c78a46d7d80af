// Package access lets pods of our own cluster use the services of peers: [Keeper] maintains a
// Service and a kubeconfig for each peer, [Guard] decides which pods may connect.
//
// # Objects
//
// For each peer that offers something, in the gateway's namespace:
//
//	Service        postern-PEER             6443 → the listener for its API server, and a port
//	                                        for each named service; only the active pod is behind it
//	Secret         postern-PEER-kubeconfig  kubeconfig, ca.crt, and token or tls.crt and tls.key
//	NetworkPolicy  postern-PEER             from pods with the label postern.dev/peer-PEER: allow
//	                                        alone, of any namespace
//
// All have the label postern.dev/peer: PEER and the release's labels, and are written by
// server-side apply (Kubernetes API, "Server-Side Apply") with the field manager "postern": fields
// that others add stay, and our own are restored. An object of such a name without our labels is
// never touched; it is a problem with a code. Objects of removed peers are deleted, by their UID.
//
// There is a NetworkPolicy per peer, and not one of the chart for all: the label's key contains the
// peer's name, which the chart does not know, and a policy cannot match parts of keys. It also
// admits UDP to the gateway's port, since a pod selected by any policy is closed to everything that
// no policy allows. If the gateway has no right to NetworkPolicies, there are none, and only Guard
// protects the listeners.
//
// # Who may connect
//
// The pod with the source address, according to the API server, must have the label and its own
// network, and must not be terminating. Answers are cached for 10 s, refusals for 2 s. While the
// API server is away, the last answer for an address is used for 10 min; an unknown address is
// refused.
package access
