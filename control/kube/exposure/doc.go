// Package exposure finds out by itself where a gateway in a cluster can be reached, and
// says why where it cannot: [Watcher] while the gateway runs, [Read] once, for a
// prediction.
//
// # What leads to the gateway
//
// The gateway's own Service, by what Kubernetes says of it (Service API, core/v1):
//
//   - type LoadBalancer: IP and hostname of every ingress point in its status. While there
//     is none, the node ports that such a Service has besides.
//   - type NodePort: the node port at the addresses of nodes that are Ready, ExternalIP and
//     ExternalDNS before InternalIP. With externalTrafficPolicy Local that is the node of the
//     active pod alone: kube-proxy drops what comes to any other.
//   - spec.externalIPs, of any type.
//
// Besides, a hostPort of the active pod, at its node. Only UDP ports that lead to the
// gateway's own count. An Ingress carries HTTP, and ExternalName is an alias in DNS: neither
// leads UDP anywhere, and either is a problem with a code.
//
// Every address says what it is from. Nothing is dialled here: whether an address works is
// for peers to find out.
//
// # Auth and the API server
//
// Peers out-of-band dial them directly. How auth is exposed is read of its Service and of
// the Ingresses that lead to it; of these, what they do with TLS. The API server is where the
// configuration says, else where kube-public's cluster-info does (kubeadm), else port 6443
// of the first control-plane node. Managed clusters tell neither.
//
// # Watching
//
// Watches hold no more than what is read of an object, and nodes are watched only once
// their addresses matter. While the API server is away, what was known stays in force. A
// change is told after a moment, in which what belongs together arrives.
package exposure
