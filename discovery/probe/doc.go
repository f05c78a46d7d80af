// Package probe writes and reads authenticated probes: STUN binding requests between
// gateways, and the responses to them. An exchange proves that a path works both ways,
// and tells the round trip time and the address that the peer sees us from, without a
// third party. Everything else that a stranger may send gets silence.
//
// It holds no socket and no clock: bytes in, bytes out ([Prober]).
//
// # Wire format, version 1.0
//
// A request is a STUN binding request (RFC 8489) of exactly these attributes in this
// order, 80 bytes when it is not padded:
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
// A response is a binding success response of XOR-MAPPED-ADDRESS, the source of the
// request, and MESSAGE-INTEGRITY by the reply key: 56 bytes for IPv4, 68 for IPv6. It is
// tied to its request by the transaction ID. Neither has a FINGERPRINT. All numbers are
// big-endian.
//
// A request of a gateway that another runs on instead of, with its key (Replay, below), is
// answered by a binding error response, of 76 bytes: the probe attribute, of which the boot id
// counts and is that of the later start, ERROR-CODE 438 and MESSAGE-INTEGRITY by the reply key.
// A request of a gateway that was a peer and is none any more is answered likewise, with
// ERROR-CODE 403 and the boot id of who answers. Older gateways take that for nothing.
//
// So an exchange in 20 s, with the headers of IPv4 and UDP, is (80 + 56 + 2×28) × 4,320 =
// 829 kB a day.
//
// # Keys
//
//	secret      = X25519(own private key, peer's public key), which must not be zero
//	PRK         = HKDF-Extract(SHA-256, salt = preshared key or 32 zeros, secret)
//	info        = "postern probe v1" ‖ lower public key ‖ higher public key ‖ direction ‖ salt
//	request key ‖ reply key ‖ key id = HKDF-Expand(PRK, info, 32 + 32 + 8)
//
// Public keys are ordered as byte strings. Direction is one byte, 0 when the holder of
// the lower key makes the request and 1 when that of the higher does, so the sides share
// no key in which one could be played the other's messages. The salt is empty for the
// initial keys, and boot id (64 bit) ‖ generation (16 bit), both of the requesting side,
// for all others.
//
// # Rotation
//
// A key id on the wire says to an observer that the same two gateways speak, so it is
// changed after 64 requests and when the network changes; never by the clock, which small
// machines lack. A request states the generation of its sender's keys: that is the
// announcement, authenticated like all of it. The receiver of the newest request, of
// generation g, accepts the key ids of g-1, g and g+1, and the initial one always. The
// sender moves from g to g+1 only when a request that stated g was answered. So the two
// agree whatever is lost, and only a receiver that restarted has forgotten: the sender
// uses the initial id until it is answered, every other time when three requests in a row
// were not, and from the moment on that it learns of the peer's restart.
//
// # Replay
//
// The counter rises with every request of a process to a peer, and the boot id with every
// process. A request with a lower boot id than the highest seen of the peer is refused; when
// it has the boot id before that one and was not seen before, it is told apart
// ([ReasonTwoLives]), and its sender is told. And of one boot id each counter counts once,
// unless it is more than 1,023 behind the newest. Refused requests change nothing, and all
// others are answered by nothing.
//
// What is left to someone on the path: to deliver a request from another address before
// the original arrives. The response then goes there and is of no use to him, and an
// address counts as a path only after an own request to it was answered.
//
// # Versions
//
// A receiver takes any minor version of its own major one: newer minors may append to
// the attribute and use bits of the flags, which others ignore. A request of another major
// version, or with an attribute that must be understood and is not, is refused; since it
// would be read under other keys, it is normally not even recognized.
//
// Test vectors are in testdata/vectors.json.
package probe
