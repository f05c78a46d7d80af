// Package predict says, before two clusters peer, which mode will work between them, over
// which path, who dials, and what each lacks. It does no I/O: what it goes by is how each
// cluster exposes its three services, as a file says ([Read]), or as a gateway's Status or
// NetCheck or a ticket's candidates show (the From functions).
//
// The rules are those of peering. In-band needs the gateways alone: one of them reachable,
// or NATs between which a path can be punched, or a relay. Out-of-band needs each cluster's
// auth and API server reachable from the other, and the gateways as in-band. A private
// address is reachable on the same LAN and nowhere else.
//
// # File
//
// YAML, strict, of two documents or of one with clusters: [ … ]. For each cluster:
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
// auth is LoadBalancer, NodePort, Ingress, ClusterIP or port-forwarding; apiServer is
// provider, public, private, ingress or port-forwarding. tls says what an Ingress does with
// it: passthrough, reencrypted or terminated. nat is as `postern netcheck` prints it; of what
// is left out the prediction says what it depends on.
package predict
