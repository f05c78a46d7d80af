// Package relay keeps an allocation on a TURN server (RFC 8656): a public address that
// passes datagrams on to this gateway when there is no direct way to it.
//
// # One client, one server
//
// A [Client] belongs to one configured server. It allocates, keeps the allocation and
// its permissions alive, notices when it is lost, says in words why, and allocates
// again. Over UDP it speaks from the gateway's own socket ([Socket]), which spares a
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
// # After a restart
//
// A server knows an allocation over UDP by the address and port that our packets come
// from. A gateway that restarts on its port finds its allocation there still, and adopts
// it ([Grant]) instead of a new one: behind a symmetric NAT on either side the relayed
// address is all that peers know of it, and when both restart at once there is nobody left
// to report another. Permissions are recreated; channels of before are found out by asking,
// since a number may be bound to its address alone (RFC 8656 §12). An allocation over TCP
// or TLS ends with its connection and cannot be adopted.
//
// # What is the library's, and what is not
//
// pion/turn's client allocates. It swallows the answers to its refreshes, blocks in WriteTo
// until a permission is there, sends datagrams one by one, and panics on an address
// attribute without a value; the README lists what was found in its source. So everything
// that comes from the server is checked before the library sees it, and refreshing,
// verifying, permissions, channels and data are this package's.
package relay
