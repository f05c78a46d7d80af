// Package secrets keeps a gateway's state files in Secrets of its namespace: it is a
// state.Backend, so that the gateway needs no volume.
//
// # Objects
//
//	RELEASE-state-key         private.key
//	RELEASE-state-peers       peers.json
//	RELEASE-state-tickets     tickets.json
//	RELEASE-state-identities  identities.json
//	RELEASE-state-learned     observed.json, boots.json, relays.json, overlay.json, trial.json
//
// They are of type postern.dev/state, with the label app.kubernetes.io/instance and one
// data key per file, and belong to the StatefulSet (metadata.ownerReferences): `helm uninstall`
// removes it, and the garbage collector them; `helm upgrade` keeps it. An object that is not of
// that type is someone else's and is not touched.
//
// # One writer
//
// The annotation postern.dev/writer names the term of whoever may write. Load puts our own
// one there, into every object, and makes those that are missing; so a gateway that takes over fences the one before
// it, whatever that believes. Each write is for the version of the object that was last seen
// (metadata.resourceVersion). When that is outdated the object is read again: with our
// writer in it it was our own write whose answer got lost, or someone's label, and the write
// is repeated; with another writer it is a state.ErrFenced, from then on for every write.
//
// A Secret holds 1 MiB (kube-apiserver's limit on the sum of its values): that is checked
// before anything is sent.
package secrets
