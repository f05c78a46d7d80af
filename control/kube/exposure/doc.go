// Package exposure finds out where a gateway in a cluster can be reached, or why it cannot:
// [Watcher] while the gateway runs, [Read] once, for a prediction.
//
// # What leads to the gateway
//
// The gateway's own Service, according to Kubernetes' Service API (core/v1):
//
//   - type LoadBalancer: IP and hostname of every ingress point in its status. While there
//     are none, the node ports that such a Service also has.
//   - type NodePort: the node port at the addresses of Ready nodes, ExternalIP and
//     ExternalDNS before InternalIP. With externalTrafficPolicy Local only at the active
//     pod's node: kube-proxy drops what arrives at others.
//   - spec.externalIPs, of any type.
//
// In addition, a hostPort of the active pod, at its node. Only UDP ports that lead to the
// gateway's own count. An Ingress carries HTTP, and ExternalName is a DNS alias: neither carries
// UDP, and each is a problem with a code.
//
// Every address says where it comes from. Nothing is dialled here: peers find out whether an
// address works.
//
// # Auth and the API server
//
// Out-of-band peers dial them directly. How auth is exposed is derived from its Service and the
// Ingresses that lead to it, including what these do with TLS. The API server's address is the
// configured one, or that in kube-public's cluster-info (kubeadm), or port 6443 of the oldest
// control plane node. Managed clusters provide neither.
//
// # Watching
//
// Watches only keep what is read of an object, and nodes are only watched if their addresses
// matter. While the API server is unreachable, the last known state stays in force. Changes are
// reported after a short delay, to combine related ones.
package exposure
