// Package peers makes a cluster's Peer objects the peers of its gateway, and reports their state in
// the objects' status and in Events.
//
//	Peer objects ──▶ resolve ──▶ admit ──▶ Gateway.SetPeers
//	                 (alone)    (together)
//	Peer objects ◀── status, rate limited ◀── Gateway.Status
//	Peer objects ◀─▶ peers that joined by ticket or were added by command
//
// # Rules
//
// An object is checked by itself and then against the others. A fault in it concerns only itself:
// it is not in force, its condition TunnelReady says why, and the others work. Of two with one key
// the older wins. If the gateway still refuses a set, the set is built up one by one to find the
// faulty object.
//
// What was last seen is in force as long as nothing newer is known. If the API server is away
// nothing changes; when it is back, the controller catches up.
//
// # Peers that joined
//
// A peer that joined by ticket, or was added by command, gets an object with the label
// postern.dev/origin, once. From then on the object says what the peer may do, and the gateway's
// state has what was agreed with it (preshared key, candidates). Neither exists for long without
// the other. Deleting the object removes the peer, even if the gateway was down at the time,
// because its state says that there was an object; and removing the peer by command deletes the
// object. There are no finalizers: an uninstalled gateway leaves nothing that cannot be deleted.
//
// A peer that waits for approval has an object with pending: true. Setting it to false approves the
// key that the object names, and no other.
//
// # Status
//
// The status is written by server-side apply of the status subresource (field manager postern), so
// that it neither touches others' fields nor loses conflicts. A changed state or condition is
// written within a second, but no more often than [urgentEvery] (10 s) for one peer that keeps
// changing. A round trip time that changed by 20 % and by 1 ms, a message's wording or a renewed
// identity is written at most every [calmEvery] (2 min), one peer at a time with [calmGap] in
// between: 0.33 requests a second however many peers there are.
//
// # Files
//
//   - controller.go: the loop: objects to peers, peers to status
//   - resolve.go: reading one object, and what is wrong with it
//   - secrets.go: the Secrets that objects refer to, and when they are read again
//   - admit.go: conflicts between objects: same key, same address
//   - apply.go: what the gateway refuses
//   - joined.go: objects for peers that joined by ticket
//   - status.go: the status and its conditions
//   - pace.go: how often a status is written, and how much a round trip must change first
//   - events.go: which changes become Events
//   - reasons.go: reasons of conditions and Events
//   - refusals.go: objects not in force, in the gateway's own checks
//   - gateway.go: what is needed of the gateway
package peers
