// Package lan finds gateways on the local network, and announces this one there, by DNS-SD (RFC
// 6763) over multicast DNS (RFC 6762). A [Finder] does both while it runs, and sends nothing
// before. A found gateway is not trusted: it is only someone's claim.
//
// # Records
//
//	_services._dns-sd._udp.local.  PTR  _postern._udp.local.
//	_postern._udp.local.           PTR  NAME._postern._udp.local.
//	NAME._postern._udp.local.      SRV  0 0 PORT HOST.local.
//	NAME._postern._udp.local.      TXT  "v=1" "pk=…" "ov=…" "caps=…" "pr=…"
//	HOST.local.                    A, AAAA
//
// NAME is the cluster's name, or "NAME (2)" and so on if it is taken. HOST is postern- and 16
// hexadecimal digits derived from the public key. So it differs from the host's own names, which
// another responder may own. The strings of TXT:
//
//	v     version of what follows: 1
//	pk    the gateway's public key, base64
//	ov    its overlay address, which must match the key
//	caps  capabilities, separated by commas; may be missing
//	pr    proof of membership in the LAN group, base64; may be missing ([Proof])
//
// Unknown strings are ignored, and so are repeated keys (RFC 6763 §6.4). All records have the TTL
// of [Options].TTL, 120 s by default.
//
// # Membership
//
// Gateways that share a secret of 32 random bytes form a LAN group. The proof is
//
//	HMAC-SHA256(base64 of the secret, "postern lan v1" ‖ 0 ‖ public key ‖ NAME)
//
// It does not reveal the secret, which is too long to guess. It only says that this key, under
// this name, is a member's. Someone who repeats the proof gains nothing without the private key.
//
// # Which senders are accepted
//
// On Linux the sockets are bound to the groups 224.0.0.251 and ff02::fb and to one interface. So
// only packets to the group there arrive, which no router forwards (RFC 6762 §11), and other
// programs on the host still get what is sent to its own addresses. On other systems packets to
// other addresses are dropped. The sender must be on-link: in a network of the interface, or
// link-local. Everything is sent with a hop limit of 255, which shows receivers that check it
// that it comes from this link. Of a found gateway's addresses only those count that are in a
// network of the interface where it was heard.
//
// # Structure
//
// The machine is a state machine without clock, socket or goroutine: packets and the time go in,
// packets and the next deadline come out. The [Finder] drives it. A link of the machine is an
// interface; IPv4 and IPv6 are two ways to send on it.
package lan
