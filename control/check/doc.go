// Package check finds out what can be reached of a peer and what is wrong with this gateway, and
// says why and how to fix it.
//
// A check takes one target through its stages and ends in a finding (verdict.Finding): an outcome
// and, unless all is well, a stable code, the failed stage, the addresses and values concerned, and
// what else it rests on.
//
//	gateway           resolve → probe → handshake → ping
//	mtu               mtu
//	path              traffic, of what connections have shown
//	auth              tcp → http → auth
//	apiServer         tcp → tls → http → auth
//	auth-direct, …    dns → tcp → tls → http → auth, outside the tunnel
//	network, exposure, upstream-…, resources, tickets, clock   of this gateway by itself
//
// Facts and Own are what is known when a check starts; nothing here looks into tunnel or discovery.
// A single decision table (faults.go) judges what was seen of a peer that does not answer.
//
// A Runner checks peers on a schedule and on demand. Package verdict finds the root among its
// findings and the peers' reports, and renders them with the texts of control/catalogue.
package check
