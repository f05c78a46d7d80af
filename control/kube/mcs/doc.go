// Package mcs implements the Kubernetes side of the Multi-Cluster Services API (KEP-1645):
// ServiceExports become the gateway's exports, and its imports become objects that pods of this
// cluster use.
//
//	ServiceExports, Services, EndpointSlices ──▶ Services.SetExports
//	ServiceExports ◀── conditions Valid, Ready, Conflict
//	ServiceImports, derived Services, EndpointSlices ◀── Services.State
//
// # What is made
//
// An import of type ClusterSetIP gets a Service without a selector, whose address is the import's,
// and an EndpointSlice per cluster: with the gateway's listeners for a peer's cluster, and with the
// pods themselves for this cluster's own export. A Headless import gets such a Service for each
// backend of a peer. Its address represents the backend in the EndpointSlices that DNS reads, which
// contain the backends' hostnames. DNS is the cluster's own: CoreDNS's plugin kubernetes with the
// option multicluster. If that can only forward, [FollowZone] provides the same names to a server
// of the gateway.
//
// # Rules
//
// All objects are owned by the Role or ClusterRole that permits the gateway to make them: they are
// deleted when the right is withdrawn, and with the release. They have the gateway's labels; an
// object without them belongs to someone else and is left alone. Objects are applied (server-side
// apply), so what others add to them stays, even conditions of other types in a status. Objects of
// a peer that has not been heard since the gateway's start are kept, because a recreated Service
// would have another address. What such a peer exported together with other clusters stays as it is
// for a while: its ports would go and come back. Then its EndpointSlices are emptied. A derived Service
// has the IP family of the gateway's listeners, or else of its endpoints; one of which no endpoint has
// its family leads nowhere, and is made again.
//
// The kinds of the API do not belong to the gateway. While the cluster does not have them, the
// gateway keeps looking for them and reports that (PST0920). If there is no v1beta1 it uses
// v1alpha1.
//
// # Files
//
//   - controller.go: the loop, and which version of the API is used
//   - clients.go: the kinds, and reading and writing them
//   - place.go: watching a namespace, or all, and what of an object is kept in memory
//   - exports.go: from ServiceExports, Services and EndpointSlices to exports; which backends count
//   - imports.go: from imports to objects
//   - share.go: which imports are left as they are; how many addresses each peer and namespace may take
//   - status.go: conditions of ServiceExports
//   - writer.go: applying and deleting objects, and when nothing has to be written
//   - names.go: whether the cluster's DNS answers for an import
//   - zone.go: the names for the gateway's own DNS server
package mcs
