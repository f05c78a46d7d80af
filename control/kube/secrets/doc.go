// Package secrets stores a gateway's state files in Secrets of its namespace. It is a
// state.Backend, so the gateway needs no volume.
//
// # Objects
//
//	RELEASE-state-key         private.key
//	RELEASE-state-peers       peers.json
//	RELEASE-state-tickets     tickets.json
//	RELEASE-state-identities  identities.json
//	RELEASE-state-learned     observed.json, boots.json, relays.json, overlay.json, trial.json
//
// They have the type postern.dev/state, the label app.kubernetes.io/instance and one data key per
// file. The StatefulSet owns them (metadata.ownerReferences): `helm uninstall` deletes it, and
// the garbage collector then deletes them; `helm upgrade` keeps it. Objects of another type
// belong to someone else and are not changed.
//
// # One writer
//
// The annotation postern.dev/writer contains the term of the current writer. Load sets our own in
// every object, and creates missing objects. So a gateway that takes over fences the previous
// one, whatever that one believes. Each write requires the object's version that was last seen
// (metadata.resourceVersion). If that is outdated the object is read again. If the writer is
// still ours, the change was our own write whose answer was lost, or someone's label, and the
// write is repeated. With another writer, this and every later write is a state.ErrFenced.
//
// A Secret holds at most 1 MiB (kube-apiserver's limit on the sum of its values). This is checked
// before anything is sent.
package secrets
