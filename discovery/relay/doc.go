// Package relay keeps an allocation on a TURN server (RFC 8656): a public address that
// passes datagrams on to this gateway when there is no direct way to it.
//
// # One client, one server
//
// A [Client] belongs to one configured server. It allocates, keeps the allocation and
// its permissions alive, notices when it is lost, says in words why, and allocates
// anew. Over UDP it speaks from the gateway's own socket ([Socket]), which spares a
// second port and a second NAT mapping; where UDP does not get through it takes TCP,
// then TLS, and later tries its way back to UDP.
//
// # Two strangers
//
// A TURN permission names an IP address, not a port (RFC 8656 §9). Every allocation here
// has a permission for its server's own relay address. So two gateways that know no more
// of each other than a relayed address on the same server meet, without exchanging
// anything first.
//
// # What is the library's, and what is not
//
// pion/turn's client allocates, retransmits, sends, and binds channels. It swallows the
// answers to its refreshes, blocks in WriteTo until a permission is there, and panics on
// an address attribute without a value; the README lists what was found in its source.
// So everything that comes from the server is checked before the library sees it, and
// refreshing, verifying and permissions are transactions of this package.
package relay
