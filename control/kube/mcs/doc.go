// Package mcs is what the Multi-Cluster Services API (KEP-1645) has of Kubernetes: ServiceExports
// become the exports of the gateway, and its imports become objects that pods of this cluster use.
//
//	ServiceExports, Services, EndpointSlices ──▶ Services.SetExports
//	ServiceExports ◀── conditions Valid, Ready, Conflict
//	ServiceImports, derived Services, EndpointSlices ◀── Services.State
//
// # What is made
//
// For an import of type ClusterSetIP a Service without a selector, whose address is the import's,
// and an EndpointSlice a cluster: with the gateway's listeners for a peer's, and with the pods
// themselves for what this cluster exports. For a Headless one there is such a Service for each
// backend of a peer, and its address stands for the backend in the EndpointSlices that DNS reads;
// those have the backends' hostnames. DNS is the cluster's own: CoreDNS's plugin kubernetes with
// the option multicluster. Where that can only forward, [FollowZone] gives the same names to a
// server of the gateway.
//
// # Rules
//
// All that is made is owned by the Role or ClusterRole that lets the gateway make it: it goes when
// the right is taken, and with an uninstalled release. It has the gateway's labels; an object
// without them is somebody else's, and is left alone. Objects are applied (server-side apply), so
// what others add to them stays, conditions of other types in a status as well. What is there of a
// peer that has not been heard since the gateway's start is kept: a Service that is made again has
// another address.
//
// The kinds of the API are not the gateway's. While the cluster has not got them they are
// looked for again, and that is told (PST0920). v1alpha1 will do where there is no v1beta1.
package mcs
