// Package faketest is a router for tests of port mapping: PCP (RFC 6887), NAT-PMP (RFC
// 6886) and UPnP IGD, all in memory and in the time of the test, also a virtual one. It
// keeps the rules that real routers keep (nonces, client addresses, lifetimes, epochs) and
// can be told to break every one of them. Its codecs are its own, so that a mistake of the
// client's is not made twice.
package faketest
