// Package peers makes a cluster's Peer objects the peers of its gateway, and tells in the
// objects' status and in Events what becomes of them.
//
//	Peer objects ──▶ resolve ──▶ admit ──▶ Gateway.SetPeers
//	                 (alone)    (together)
//	Peer objects ◀── status, rate limited ◀── Gateway.Status
//	Peer objects ◀─▶ peers that joined by ticket or were added by command
//
// # Rules
//
// An object is judged by itself and then beside the others, and what is wrong with it is its
// own business: it is out of force, its condition TunnelReady says why, and the others work.
// Of two with one key the older counts. If the gateway refuses a set nevertheless, the set is
// built up one by one to find out whose fault it is.
//
// What was seen last is in force so long as nothing newer is known. An API server that is
// away changes nothing; when it is back, what was missed is made good.
//
// # Peers that joined
//
// A peer that joined by ticket, or was added by command, gets an object with the label
// postern.dev/origin, once. From then on the object says what the peer may do, and the
// gateway's state has what was agreed with it (preshared key, candidates). Neither is there
// without the other for long: deleting the object removes the peer, also when the gateway did
// not run at the time, because its state remembers that there was an object; and removing the
// peer by command deletes the object. There are no finalizers: an uninstalled gateway leaves
// nothing that cannot be deleted.
//
// A peer that waits for approval has an object with pending: true. Whoever sets it to false
// has approved the key that the object names, and no other.
//
// # Status
//
// Status is written by server-side apply of the status subresource (field manager postern),
// so that nobody else's fields are touched and no conflict is lost. A state or condition that
// changed is written within a second, though not more often than [urgentEvery] for one peer
// that keeps changing; a round trip time, a message's wording or a renewed identity at most
// every [calmEvery], one peer at a time with [calmGap] between: 0.33 requests a second
// however many peers there are.
package peers
