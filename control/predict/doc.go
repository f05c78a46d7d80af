// Package predict predicts, before two clusters peer, which mode will work between them, over
// which path, which side dials, and what each lacks. It does no I/O. Its input is how each
// cluster exposes its three services, according to a file ([ReadClusters]), a gateway's Status or
// NetCheck, or a ticket's candidates (the From functions).
//
// The rules are those of peering. In-band mode only needs the gateways: one of them must be
// reachable, or their NATs must allow hole punching, or there must be a relay. Out-of-band mode
// needs each cluster's auth and API server to be reachable from the other, and the gateways as
// for in-band. A private address is only reachable on the same LAN.
//
// # File
//
// Strict YAML, either two documents or one with clusters: [ … ]. For each cluster:
//
//	name: edge
//	lan: home                  # the same word for both: one broadcast domain
//	relay: true                # spec.discovery.turnServers is set here
//	auth:      {exposure: Ingress, address: "203.0.113.4:443", tls: passthrough}
//	apiServer: {exposure: public, address: "203.0.113.5:6443"}
//	gateway:
//	  exposure: NodePort       # LoadBalancer | NodePort | ClusterIP | port-forwarding
//	  addresses: ["10.0.0.5:31820"]
//	  nat: {mapping: endpoint-independent, filtering: address-and-port-dependent, answersStrays: false}
//
// auth is LoadBalancer, NodePort, Ingress, ClusterIP or port-forwarding; apiServer is provider,
// public, private, ingress or port-forwarding. tls says what an Ingress does with TLS:
// passthrough, reencrypted or terminated. nat is in the format of `postern netcheck`. If
// something is omitted, the prediction says how it depends on that.
package predict
