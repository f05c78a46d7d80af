// Package dnssd finds gateways in DNS: it browses domains for instances of a service (RFC
// 6763) by unicast queries, and writes the records that have a gateway found. Finding is
// not trusting: what is found is what a zone says.
//
// # Records
//
//	_postern._udp.DOMAIN.       PTR  NAME._postern._udp.DOMAIN.
//	NAME._postern._udp.DOMAIN.  SRV  PRIORITY WEIGHT PORT HOST.
//	NAME._postern._udp.DOMAIN.  TXT  "v=1" "pk=…" "ov=…" "caps=…"
//	HOST.                       A, AAAA
//
// NAME is the cluster's name. Any of the names may be an alias (CNAME). The strings of TXT:
//
//	v     version of what follows: 1
//	pk    the gateway's public key, base64
//	ov    its overlay address, which must be the one that belongs to the key; may be missing
//	caps  capabilities, separated by commas; may be missing
//
// Unknown strings are ignored, and so is the second of one key (RFC 6763 §6.4). Several SRV
// records are the ways to one gateway: those of the lowest priority come first, and among
// these the order is drawn by weight (RFC 2782). The draw depends on who looks and on the
// record alone, so that it does not change while the records do not.
//
// # Asking
//
// Servers are those of resolv.conf, read again for every question, or those that are
// configured. A question goes out from a port of its own by UDP with EDNS0 (RFC 6891),
// 1232 bytes at most, and by TCP when the answer is truncated; each server is given 2 s, and
// all are asked twice. An answer counts from the address that was asked, with the number and
// the question that were sent. The AD bit is set (RFC 6840 §5.7), so that a resolver that
// validates says so; of one that fails, the reason is told from its extended error (RFC
// 8914), or by asking again without validation.
//
// Each record set is asked for again when its time to live is over, within 5 s and 1 h; that
// it does not exist holds as long as the zone says (RFC 2308). While no server answers, what
// was last known holds for a day.
//
// # Bounds
//
// 64 instances of a domain, 16 SRV and 4 TXT records of an instance, 1024 bytes of TXT, 8
// addresses of each family of a host, 16 of an instance, 8 aliases in a row. What goes beyond
// is named and left out.
//
// # Structure
//
// The machine of a domain is a state machine without clock or socket: answers and "now" go
// in, questions and the next deadline come out. The [Finder] drives it.
package dnssd
