// Package dnssd finds gateways in DNS. It browses domains for instances of a service (RFC 6763)
// by unicast queries, and writes the records by which a gateway can be found. A found gateway is
// not trusted: it is only what a zone says.
//
// # Records
//
//	_postern._udp.DOMAIN.       PTR  NAME._postern._udp.DOMAIN.
//	NAME._postern._udp.DOMAIN.  SRV  PRIORITY WEIGHT PORT HOST.
//	NAME._postern._udp.DOMAIN.  TXT  "v=1" "pk=…" "ov=…" "caps=…"
//	HOST.                       A, AAAA
//
// NAME is the cluster's name. Each of the names may be an alias (CNAME). The strings of TXT:
//
//	v     version of what follows: 1
//	pk    the gateway's public key, base64
//	ov    its overlay address, which must match the key; may be missing
//	caps  capabilities, separated by commas; may be missing
//
// Unknown strings are ignored, and so are repeated keys (RFC 6763 §6.4). Several SRV records are
// several ways to one gateway. Those of the lowest priority come first, and among these the order
// is random by weight (RFC 2782). The randomness depends only on the gateway that looks and on
// the record, so the order is stable while the records are.
//
// # Queries
//
// The servers are those of resolv.conf, read again for every question, or the configured ones.
// Each question is sent over UDP from its own port with EDNS0 (RFC 6891), for at most 1232 bytes,
// and over TCP if the answer is truncated. Each server has 2 s to answer, and all are queried
// twice. An answer counts if it comes from the queried address, with the same id and question.
// The AD bit is set (RFC 6840 §5.7), so that a resolver that validates says so. If validation
// fails, the reason comes from the extended error (RFC 8914), or from another query without
// validation.
//
// Each record set is queried again when its TTL is over, within 5 s and 1 h. A negative answer is
// valid for as long as the zone says (RFC 2308). While no server answers, the last known records
// stay in use for a day.
//
// # Limits
//
// 64 instances of a domain, 16 SRV and 4 TXT records of an instance, 1024 bytes of TXT, 8
// addresses of each family of a host, 16 of an instance, 8 aliases in a row. Anything beyond is
// reported and left out.
//
// # Structure
//
// The machine of a domain is a state machine without clock or socket: answers and the time go in,
// questions and the next deadline come out. The [Finder] drives it.
package dnssd
