// Package check finds out what of a peer can be reached and what is wrong with this
// gateway, and says why and what fixes it.
//
// A check takes one thing through its stages and ends in a finding (verdict.Finding): an
// outcome, and unless all is well a stable code, the stage that failed, the addresses and
// values concerned, and what else it rests on.
//
//	gateway           resolve → probe → handshake → ping
//	mtu               mtu
//	path              traffic, of what connections have shown
//	auth              tcp → http → auth
//	apiServer         tcp → tls → http → auth
//	auth-direct, …    dns → tcp → tls → http → auth, outside the tunnel
//	network, exposure, upstream-…, resources, tickets, clock   of this gateway by itself
//
// Facts and Own are what is known when a check starts; nothing here looks into tunnel or
// discovery. What was seen of a peer that does not answer is judged by one decision table
// (faults.go).
//
// A Runner checks peers on a schedule and on demand. Package verdict finds the root among its
// findings and what peers report, and puts them into words out of control/catalogue.
package check
