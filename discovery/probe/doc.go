// Package probe writes and reads authenticated probes: STUN binding requests between gateways,
// and the responses to them. An exchange proves that a path works in both directions. It also
// measures the round trip time, and shows the address from which the peer sees us, without a
// third party. Everything else that a stranger may send gets no answer.
//
// It has no socket and no clock: bytes in, bytes out ([Prober]).
//
// # Wire format, version 1.0
//
// A request is a STUN binding request (RFC 8489) with exactly these attributes in this order, 80
// bytes without padding:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|        0x0001 request         |            length             |
//	|                    magic cookie 0x2112A442                    |
//	|                    transaction ID (96 bit)                    |
//	+---------------------------------------------------------------+
//	|        0x0006 USERNAME        |               8               |
//	|                        key id (64 bit)                        |
//	+---------------------------------------------------------------+
//	|         0xFD57 probe          |              20               |
//	| major | minor |     flags     |            path id            |
//	|          generation           |       counter, high part      |
//	|                 counter, low part (48 bit in all)             |
//	|                        boot id (64 bit)                       |
//	+---------------------------------------------------------------+
//	|        0x0026 PADDING         |  zeros, to learn a path's MTU |   (optional)
//	+---------------------------------------------------------------+
//	|   0x0008 MESSAGE-INTEGRITY    |              20               |
//	|              HMAC-SHA1 by the request key (160 bit)           |
//	+---------------------------------------------------------------+
//
// A response is a binding success response with XOR-MAPPED-ADDRESS, the source of the request,
// and MESSAGE-INTEGRITY by the reply key: 56 bytes for IPv4, 68 for IPv6. The transaction ID ties
// it to its request. Neither has a FINGERPRINT. All numbers are big-endian.
//
// If a later start of a gateway runs with the same key (Replay, below), a request of the earlier
// one is answered by a binding error response of 76 bytes: the probe attribute, of which only the
// boot id counts (that of the later start), ERROR-CODE 438 and MESSAGE-INTEGRITY by the reply
// key. A request of a gateway that is no longer a peer is answered likewise, with ERROR-CODE 403
// and the answering gateway's boot id. Older gateways ignore both.
//
// So an exchange every 20 s, with the headers of IPv4 and UDP, costs (80 + 56 + 2×28) × 4,320 =
// 829 kB a day.
//
// # Keys
//
//	secret      = X25519(own private key, peer's public key), which must not be zero
//	PRK         = HKDF-Extract(SHA-256, salt = preshared key or 32 zeros, secret)
//	info        = "postern probe v1" ‖ lower public key ‖ higher public key ‖ direction ‖ salt
//	request key ‖ reply key ‖ key id = HKDF-Expand(PRK, info, 32 + 32 + 8)
//
// Public keys are ordered as byte strings. Direction is one byte: 0 if the holder of the lower
// key makes the request, 1 if the holder of the higher does. So the two directions share no key,
// and a message cannot be reflected to its sender. The salt is empty for the initial keys. For
// all others it is boot id (64 bit) ‖ generation (16 bit), both of the requesting side.
//
// # Rotation
//
// A key id shows an observer that the same two gateways communicate. So it is changed after 64
// requests and when the network changes, but never by the clock, which small machines lack. A
// request states the generation of its sender's keys, which announces the generation,
// authenticated like the rest. If the newest request was of generation g, the receiver accepts
// the key ids of g-1, g and g+1, and always the initial one. The sender moves from g to g+1 only
// once a request that stated g was answered. So both agree whatever is lost, unless the receiver
// restarted and has forgotten. The sender uses the initial id until it is answered, for every
// other request once three in a row were unanswered, and as soon as it learns of the peer's
// restart.
//
// # Replay
//
// The counter grows with every request of a process to a peer, and the boot id with every
// process. A request with a lower boot id than the highest seen from the peer is refused. If it
// has one of the previous four and was not seen before, it is reported as [ReasonTwoLives], and its
// sender is told; when the later process has ended, [Prober.SetBootID] lets it in again. Within a boot id each counter is accepted once, unless it is more than 1,023
// behind the newest. Refused requests change nothing, and all others get no answer.
//
// One attack remains for someone on the path: to deliver a request from another address before
// the original arrives. The response then goes to that address, which does not help the attacker:
// an address counts as a path only after our own request to it was answered.
//
// # Versions
//
// A receiver accepts any minor version of its own major version. Newer minor versions may append
// to the attribute and use bits of the flags, which older ones ignore. A request of another major
// version, or with an unknown comprehension-required attribute, is refused. Normally it is not
// even recognised, since it would be read with other keys.
//
// Test vectors are in testdata/vectors.json.
package probe
