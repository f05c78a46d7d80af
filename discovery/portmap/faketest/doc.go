// Package faketest is a router for tests of port mapping: PCP (RFC 6887), NAT-PMP (RFC 6886) and
// UPnP IGD, in memory, and in virtual time if the test uses it. It follows the rules of real
// routers (nonces, client addresses, lifetimes, epochs) and can be made to break each of them. It
// has its own codecs, so that a mistake of the client's is not repeated here.
package faketest
