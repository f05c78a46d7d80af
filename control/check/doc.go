// Package check finds out what of a peer can be reached, and says why not.
//
// A check takes one target of one peer (gateway, auth or apiServer) through its stages
// and ends in a verdict (api.Verdict): an outcome, and unless all is well a stable code,
// the stage that failed, the cause with the addresses and values concerned, and a fix.
//
//	gateway    handshake → ping
//	auth       tcp → http → auth
//	apiServer  tcp → tls → http → auth
//
// All run inside the tunnel ("in-band"). Codes and their texts are one table (table.go);
// README.md describes each code for operators. A verdict is unknown before the first
// result and off when the peer does not offer the service. When the gateway itself does
// not answer, the other two are unknown and point at its code: a failure has one root.
package check
