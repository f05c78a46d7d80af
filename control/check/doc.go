// Package check finds out what of a peer can be reached and what is wrong with this
// gateway, and says why and what fixes it.
//
// A check takes one thing through its stages and ends in a verdict (api.Verdict): an
// outcome, and unless all is well a stable code, the stage that failed, the cause with the
// addresses and values concerned, and a fix to paste.
//
//	gateway           resolve → probe → handshake → ping
//	mtu               mtu
//	auth              tcp → http → auth
//	apiServer         tcp → tls → http → auth
//	auth-direct, …    dns → tcp → tls → http → auth, outside the tunnel
//	exposure, upstream-…, resources, tickets, clock   of this gateway by itself
//
// Facts and Own are what is known when a check starts; nothing here looks into tunnel or
// discovery. What was seen of a peer that does not answer is judged by one decision table
// (faults.go), what follows from faults of this gateway by another (follow.go): a failure
// has one root, and what depends on it is unknown and names it. Where one side cannot
// know, the verdict says so and what the other side must be asked.
//
// A Runner checks peers on a schedule and on demand and makes reports of it. What codes say
// is in control/catalogue.
package check
