// Package lan finds gateways on the local network, and has this one found there, by DNS-SD
// (RFC 6763) over multicast DNS (RFC 6762). A [Finder] does both for as long as it runs,
// and sends nothing before. Finding is not trusting: what is found is someone's claim.
//
// # Records
//
//	_services._dns-sd._udp.local.  PTR  _postern._udp.local.
//	_postern._udp.local.           PTR  NAME._postern._udp.local.
//	NAME._postern._udp.local.      SRV  0 0 PORT HOST.local.
//	NAME._postern._udp.local.      TXT  "v=1" "pk=…" "ov=…" "caps=…" "pr=…"
//	HOST.local.                    A, AAAA
//
// NAME is the cluster's name, or "NAME (2)" and so on where it is taken. HOST is
// postern- and 16 hexadecimal digits that are derived from the public key, so that it is
// none of the host's own names, which another responder may own. The strings of TXT:
//
//	v     version of what follows: 1
//	pk    the gateway's public key, base64
//	ov    its overlay address, which must be the one that belongs to the key
//	caps  capabilities, separated by commas; may be missing
//	pr    proof of being a member of the LAN group, base64; may be missing ([Proof])
//
// Unknown strings are ignored, and so is the second of one key (RFC 6763 §6.4). All
// records live as long as [Options].TTL, 120 s by default.
//
// # Membership
//
// Those who share a secret of 32 random bytes form a LAN group. The proof is
//
//	HMAC-SHA256(base64 of the secret, "postern lan v1" ‖ 0 ‖ public key ‖ NAME)
//
// A listener learns from it neither the secret, which is too long to be guessed, nor
// anything else that it could use: the proof says that this very key, under this name, is
// a member's, and whoever repeats it can do nothing with it without the private key.
//
// # Who is listened to
//
// On Linux sockets are bound to the groups 224.0.0.251 and ff02::fb and to one interface,
// so that only what was sent to the group there arrives, which no router passes on (RFC
// 6762 §11); other programs of the host keep what is sent to its own addresses. Elsewhere
// packets to other addresses are dropped. The sender must be on-link: of a network of the
// interface, or link-local. Everything is sent with a hop limit of 255, which tells those
// who check it that it comes from this link. Of the addresses of a found gateway those
// count that are of a network of the interface where it was heard.
//
// # Structure
//
// The machine is a state machine without clock, socket or goroutine: packets and "now" go
// in, packets and the next deadline come out. The [Finder] drives it. One link of the
// machine is an interface; IPv4 and IPv6 are two ways to send on it.
package lan
