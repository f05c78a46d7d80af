// Package relay keeps an allocation on a TURN server (RFC 8656): a public address that forwards
// datagrams to this gateway if there is no direct path.
//
// # One client, one server
//
// A [Client] belongs to one configured server. It allocates, keeps the allocation and its
// permissions alive, notices when it is lost, explains why, and allocates again. Over UDP it uses
// the gateway's own socket ([Socket]), which saves a second port and a second NAT mapping. If UDP
// does not get through it uses TCP, then TLS, and later tries to return to UDP.
//
// # Two strangers
//
// A TURN permission names an IP address, not a port (RFC 8656 §9). Every allocation here has a
// permission for its server's own relay address. So two gateways that only know each other's
// relayed address on the same server can meet, without exchanging anything first.
//
// # After a restart
//
// A server identifies an allocation over UDP by the address and port that our packets come from. A
// gateway that restarts on its port finds its old allocation, and adopts it ([Grant]) instead of a
// new one. Behind a symmetric NAT on either side the relayed address is all that peers know, and if
// both restart at once nobody is left to announce another. Permissions are recreated. Earlier
// channels are found by requesting them, since a number is bound to one address (RFC 8656 §12). An
// allocation over TCP or TLS ends with its connection and cannot be adopted.
//
// # What is the library's, and what is not
//
// pion/turn's client allocates, but only IPv4 addresses: from a server without IPv4 an IPv6 address is
// requested here. It hides the answers to its refreshes, blocks in WriteTo until a
// permission exists, sends datagrams one by one, and panics on an address attribute without a
// value; the README lists what was found in its source. So everything from the server is checked
// before the library sees it, and this package itself does refreshing, verifying, permissions,
// channels and data.
package relay
